#include "cli/run_plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "train/session.hpp"
#include "train/trainer.hpp"

namespace sw {

RunPlan plan_run(const RunOptions& options, const Machine& machine) {
  const Compilation compilation(compile_options(options));
  RunPlan plan = make_plan(compilation, machine);
  if (options.checkpoint.every > 0 && options.checkpoint.background) {
    std::int64_t most = 0;
    for (int rank = 0; rank < compilation.world(); ++rank) {
      most = std::max(most, checkpoint_bytes(compilation, rank));
    }
    plan.notes.push_back(
        fmt::format("checkpoint.background: once it has saved, a rank holds up to {} beside its "
                    "peak, a copy of what it writes",
                    binary_bytes(most)));
  }
  return plan;
}

}  // namespace sw
