#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "cli/command.hpp"
#include "cli/config.hpp"
#include "cli/machine.hpp"
#include "cli/rank_payload.hpp"
#include "cli/run_plan.hpp"
#include "train/launch.hpp"
#include "train/session.hpp"
#include "train/trainer.hpp"

namespace sw {
namespace {

struct TrainArguments {
  std::string run_file;
  std::int64_t ranks = 0;
  std::string out;
  bool resume = false;
  std::vector<std::string> sets;
};

std::filesystem::path run_folder_of(const TrainArguments& a) {
  return a.out.empty() ? std::filesystem::path("runs") / std::filesystem::path(a.run_file).stem()
                       : std::filesystem::path(a.out);
}

/// The ranks on their own processes, or as threads of this one.
LaunchResult start(const TrainingPlan& plan) {
  const ParallelOptions& parallel = plan.options.parallel;
  WorldOptions world;
  world.deadline_s = parallel.deadline_s;
  world.threads_per_rank = threads_per_rank(parallel);
  if (parallel.communicator == Backend::Local) {
    return run_local_ranks(parallel.layout.world(), world,
                           [&](World& mine) { return train_rank(mine, plan); });
  }
  LaunchOptions launch;
  launch.ranks = parallel.layout.world();
  launch.role = kTrainRole;
  launch.payload = to_payload(plan);
  launch.world = world;
  return launch_ranks(launch);
}

void refuse_too_many(const Layout& layout, const Environment& environment) {
  constexpr int kPerCore = 64;
  if (layout.world() > kPerCore * environment.cores) {
    throw ConfigError(
        fmt::format("{} local ranks on {} cores make no sense; use at most {} ranks, "
                    "or `shardwright plan` for a machine that you do not have",
                    layout.world(), environment.cores, kPerCore * environment.cores));
  }
}

TrainingPlan prepare(const TrainArguments& a, const RunOptions& options) {
  const std::filesystem::path base = std::filesystem::absolute(a.run_file).parent_path();
  try {
    return naming_file(a.run_file,
                       [&] { return prepare_training(options, run_folder_of(a), a.resume, base); });
  } catch (const DataError& error) {
    throw ConfigError(error.what());  // found before ranks started
  }
}

int train(const TrainArguments& a, const Environment& environment) {
  refuse_launcher(environment);
  const RunOptions options = read_run_file(a.run_file, a.sets, static_cast<int>(a.ranks));
  refuse_unsupported(options, a.run_file);
  refuse_too_many(options.parallel.layout, environment);
  const Machine machine = default_machine();
  TrainingPlan plan = prepare(a, options);
  if (plan.first_step >= plan.options.train.steps) {
    fmt::print(stderr,
               "shardwright: {} steps are done already; ask for more with --set train.steps\n",
               plan.first_step);
    return kDone;
  }
  plan.peak_flops_per_s = machine.peak_flops_per_s;
  write_whole_file(real_files(), plan.run_folder / "run.toml", to_toml(options));
  const RunPlan planned = plan_run(plan.options, machine);
  Json plan_json = to_json(planned);
  plan_json["run"] = plan.run_id;  // whose checkpoints --resume goes on from
  write_whole_file(real_files(), plan.run_folder / "plan.json", plan_json.dump(1) + "\n");
  const LaunchResult result = start(plan);
  if (result.status != kDone && result.status != kStopped) {
    fmt::print(stderr, "shardwright: {}\n", result.message);
    return result.status;
  }
  const bool equal = finish_run(plan, plan.options.parallel.layout.world());
  if (!equal) {
    fmt::print(stderr, "shardwright: planned and measured differ: see {}\n",
               (plan.run_folder / "ledger.json").string());
    return kFailed;
  }
  if (result.status == kStopped) {
    fmt::print(
        stderr,
        "shardwright: stopped by a signal, a checkpoint is saved: run again with --resume\n");
  }
  return result.status;
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
