#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/config.hpp"

namespace sw {
namespace {

struct TrainArguments {
  std::string run_file;
  std::int64_t ranks = 0;
  std::string out;
  bool resume = false;
  std::vector<std::string> sets;
};

int train(const TrainArguments& a, const Environment& environment) {
  refuse_launcher(environment);
  const RunOptions options = read_run_file(a.run_file, a.sets, static_cast<int>(a.ranks));
  refuse_unsupported(options, a.run_file);
  throw ConfigError("train is not in this version");
}

}  // namespace

Action add_train(Arguments& arguments) {
  auto a = std::make_shared<TrainArguments>();
  arguments.run_file(a->run_file);
  arguments.option("--ranks", a->ranks, 1, "N", "Local ranks; default: what the layout says.");
  arguments.option("--out", a->out, "DIR", "The run folder; default: runs/<name of the run file>.");
  arguments.flag("--resume", a->resume, "Go on from the newest checkpoint that verifies.");
  arguments.sets(a->sets);
  return [a](const Environment& environment) { return train(*a, environment); };
}

}  // namespace sw
