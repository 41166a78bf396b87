#include <fmt/format.h>

#include <memory>

#include "base/error.hpp"
#include "checkpoint/commands.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"

namespace sw {
namespace {

struct CheckpointArguments {
  std::string action;
  std::string path;
  std::string out;
  std::int64_t keep = 0;
  std::string precision = "float32";
  bool json = false;
};

CommandResult act(const CheckpointArguments& a) {
  if (a.action == "inspect") {
    return inspect_path(a.path);
  }
  if (a.action == "verify") {
    return verify_path(a.path);
  }
  if (a.action == "prune") {
    if (a.keep == 0) {
      throw ConfigError("checkpoint prune needs --keep N: how many of the newest stay");
    }
    return prune_path(real_files(), a.path, a.keep);
  }
  if (a.out.empty()) {
    throw ConfigError("checkpoint convert needs --out DIR: the folder to write");
  }
  return convert_path(real_files(), a.path, a.out, dtype_from_text(a.precision));
}

int checkpoint(const CheckpointArguments& a) {
  const CommandResult result = act(a);
  if (a.json) {
    print_json(result.json);
  } else {
    fmt::print("{}", result.text);
  }
  return result.good ? kDone : kFailed;
}

}  // namespace

Action add_checkpoint(Arguments& arguments) {
  auto a = std::make_shared<CheckpointArguments>();
  arguments.positional("ACTION", a->action, {"inspect", "verify", "convert", "prune"},
                       "inspect, verify, convert or prune.");
  arguments.positional("PATH", a->path, "A checkpoint, or a folder of them.");
  arguments.option("--out", a->out, "DIR", "convert: the folder to write.");
  arguments.option("--precision", a->precision, "TYPE",
                   "convert: of the weights written, float32 or bfloat16.");
  arguments.option("--keep", a->keep, 1, "N", "prune: the newest N stay.");
  arguments.json(a->json);
  return [a](const Environment&) { return checkpoint(*a); };
}

}  // namespace sw
