#include "cli/environment.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"

namespace sw {
namespace {

struct Launcher {
  const char* name;
  const char* size;     ///< the variable that tells how many it started
  const char* witness;  ///< set by this launcher only
};

const Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"torchrun", "WORLD_SIZE", "RANK"},
    {"srun", "SLURM_NTASKS", "SLURM_STEP_ID"},
    {"mpiexec", "PMI_SIZE", "PMI_SIZE"},
};

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

std::string find_launcher(const char* (*variable)(const char* name)) {
  for (const Launcher& launcher : kLaunchers) {
    const char* size = variable(launcher.size);
    if (size != nullptr && variable(launcher.witness) != nullptr && std::string_view(size) != "1") {
      return fmt::format("{} ({} = {})", launcher.name, launcher.size, size);
    }
  }
  return "";
}

Environment read_environment() {
  return {find_launcher([](const char* name) -> const char* { return std::getenv(name); }),
          isatty(STDERR_FILENO) == 1, usable_cores()};
}

void refuse_launcher(const Environment& environment) {
  if (!environment.launcher.empty()) {
    throw ConfigError(
        fmt::format("running under {} is not in this version; start the command once "
                    "and without it: it starts its own local ranks",
                    environment.launcher));
  }
}

}  // namespace sw
