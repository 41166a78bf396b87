#pragma once

#include "plan/plan.hpp"
#include "train/run_options.hpp"

namespace sw {

/// What the run of a run file will cost: that of its Programs, and what saving takes beside them.
[[nodiscard]] RunPlan plan_run(const RunOptions& options, const Machine& machine);

}  // namespace sw
