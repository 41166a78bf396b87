#include "lower/update_rule.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sw {
namespace {

/// Updates that a stage has made when each micro-batch's forward begins.
std::vector<int> newest_versions(const std::vector<PipelineAction>& actions, int micro_batches) {
  std::vector<int> versions(static_cast<std::size_t>(micro_batches), 0);
  int made = 0;
  for (const PipelineAction& action : actions) {
    if (action.kind == PipelineAction::Kind::Forward) {
      versions.at(static_cast<std::size_t>(action.micro_batch)) = made;
    } else {
      ++made;
    }
  }
  return versions;
}

}  // namespace

bool is_asynchronous(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::PipeDream || schedule == PipelineSchedule::PipeDream2BW;
}

UpdateRule update_rule(PipelineSchedule schedule, const Stages& stages, const PipelineOrder& order,
                       int micro_batches) {
  UpdateRule rule;
  if (!is_asynchronous(schedule)) {
    return rule;
  }
  const bool double_buffered = schedule == PipelineSchedule::PipeDream2BW;
  rule.every = double_buffered ? stages.stages : 1;
  if (micro_batches % rule.every != 0 || micro_batches < 2 * rule.every) {
    throw ConfigError(fmt::format(
        "parallel.pipeline = \"{}\" updates every {} micro-batches, and a window of train"
        ".global_batch has {}: it takes a multiple of {} and at least {}",
        double_buffered ? "pipedream_2bw" : "pipedream", rule.every, micro_batches, rule.every,
        2 * rule.every));
  }
  for (const std::vector<PipelineAction>& actions : order) {
    std::vector<int> versions = newest_versions(actions, micro_batches);
    for (int m = 0; double_buffered && m < micro_batches; ++m) {
      versions[static_cast<std::size_t>(m)] = std::max(0, rule.update_of(m) - 1);
    }
    rule.versions.push_back(std::move(versions));
  }
  return rule;
}

}  // namespace sw
