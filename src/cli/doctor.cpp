#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct DoctorArguments {
  std::string path;
  bool json = false;
};

}  // namespace

Action add_doctor(Arguments& arguments) {
  auto a = std::make_shared<DoctorArguments>();
  arguments.positional("PATH", a->path, "A run file or a run folder.");
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("doctor is not in this version"); };
}

}  // namespace sw
