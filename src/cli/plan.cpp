#include "plan/plan.hpp"

#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/config.hpp"
#include "cli/machine.hpp"
#include "cli/print_json.hpp"
#include "cli/run_plan.hpp"

namespace sw {
namespace {

struct PlanArguments {
  std::string run_file;
  std::string cluster;
  std::int64_t world = 0;
  bool search = false;
  std::int64_t top = 10;
  bool json = false;
  std::vector<std::string> sets;
};

int plan(const PlanArguments& a) {
  if (a.search) {
    throw ConfigError("plan --search is not in this version");
  }
  const RunOptions options = read_run_file(a.run_file, a.sets, static_cast<int>(a.world));
  refuse_unsupported(options, a.run_file);
  const Machine machine = a.cluster.empty() ? default_machine() : read_machine(a.cluster);
  const RunPlan result = naming_file(a.run_file, [&] { return plan_run(options, machine); });
  if (a.json) {
    print_json(to_json(result));
  } else {
    fmt::print("{}", to_text(result));
  }
  return kDone;
}

}  // namespace

Action add_plan(Arguments& arguments) {
  auto a = std::make_shared<PlanArguments>();
  arguments.run_file(a->run_file);
  arguments.option("--cluster", a->cluster, "C.toml", "A cluster file, as calibrate writes it.");
  arguments.option("--world", a->world, 1, "N", "Ranks; default: what the layout says.");
  arguments.flag("--search", a->search, "Rank the layouts that fit.");
  arguments.option("--top", a->top, 1, "K", "Layouts shown by --search.");
  arguments.sets(a->sets);
  arguments.json(a->json);
  return [a](const Environment&) { return plan(*a); };
}

}  // namespace sw
