#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct CalibrateArguments {
  std::string out;
  bool json = false;
};

}  // namespace

Action add_calibrate(Arguments& arguments) {
  auto a = std::make_shared<CalibrateArguments>();
  arguments.option("--out", a->out, "C.toml", "The cluster file.");
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("calibrate is not in this version"); };
}

}  // namespace sw
