#include "plan/calibrate.hpp"

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/files.hpp"
#include "cli/command.hpp"
#include "cli/machine.hpp"
#include "cli/print_json.hpp"

namespace sw {
namespace {

struct CalibrateArguments {
  std::string out;
  std::int64_t threads = 1;
  bool json = false;
};

int calibrate_here(const CalibrateArguments& a) {
  const Machine machine = calibrate(static_cast<int>(a.threads));
  const std::filesystem::path path = a.out.empty() ? cached_machine_path() : a.out;
  if (path.has_parent_path()) {
    real_files().create_directories(path.parent_path());
  }
  write_whole_file(real_files(), path, to_toml(machine));
  if (a.json) {
    print_json({{"file", path.string()},
                {"flops_per_s", machine.flops_per_s},
                {"peak_flops_per_s", machine.peak_flops_per_s},
                {"memory_bytes_per_s", machine.memory_bytes_per_s},
                {"link_bytes_per_s", machine.link_bytes_per_s},
                {"link_latency_s", machine.link_latency_s},
                {"instruction_s", machine.instruction_s}});
    return kDone;
  }
  fmt::print(
      "{}\n  products     {:.1f} GFLOP/s (fastest {:.1f})\n  memory       {:.1f} GB/s\n  link      "
      "   {:.1f} GB/s, {:.1f} us\n  "
      "instruction  {:.1f} us\nwritten to {}\n",
      machine.name, machine.flops_per_s / 1e9, machine.peak_flops_per_s / 1e9,
      machine.memory_bytes_per_s / 1e9, machine.link_bytes_per_s / 1e9,
      machine.link_latency_s * 1e6, machine.instruction_s * 1e6, path.string());
  return kDone;
}

}  // namespace

Action add_calibrate(Arguments& arguments) {
  auto a = std::make_shared<CalibrateArguments>();
  arguments.option("--out", a->out, "C.toml",
                   "The cluster file; default: the cached one, which plans of this machine use.");
  arguments.option("--threads", a->threads, 1, "N", "Threads of a rank.");
  arguments.json(a->json);
  return [a](const Environment&) { return calibrate_here(*a); };
}

}  // namespace sw
