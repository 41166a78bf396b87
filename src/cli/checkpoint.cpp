#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct CheckpointArguments {
  std::string action;
  std::string path;
  std::string out;
  std::int64_t keep = 0;
  bool json = false;
};

}  // namespace

Action add_checkpoint(Arguments& arguments) {
  auto a = std::make_shared<CheckpointArguments>();
  arguments.positional("ACTION", a->action, {"inspect", "verify", "convert", "prune"},
                       "inspect, verify, convert or prune.");
  arguments.positional("PATH", a->path, "A checkpoint, or a folder of them.");
  arguments.option("--out", a->out, "DIR", "convert: the folder to write.");
  arguments.option("--keep", a->keep, 1, "N", "prune: the newest N stay.");
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("checkpoint is not in this version"); };
}

}  // namespace sw
