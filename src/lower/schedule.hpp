#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lower/stages.hpp"

/// In which order the stages of a pipeline work.
namespace sw {

/// One micro-batch through one segment.
struct PipelineAction {
  /// Backward: all of it. InputGradient and WeightGradient: its two halves, for zero-bubble
  /// schedules; the second can wait, for no other stage needs it.
  enum class Kind : std::uint8_t { Forward, Backward, InputGradient, WeightGradient };
  Kind kind = Kind::Forward;
  int segment = 0;
  int micro_batch = 0;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

/// The actions of each stage, in its order.
using PipelineOrder = std::vector<std::vector<PipelineAction>>;

/// Throws ConfigError for numbers of micro-batches that a schedule does not take.
///
///   gpipe        all forwards, then all backwards
///   1f1b         stage s runs P - s - 1 forwards ahead, then one forward and one backward in turn
///                (Narayanan et al. 2019, arXiv:1806.03377; 2021, arXiv:2006.09503)
///   interleaved  the same over several chunks a stage, groups of P micro-batches through each in
///                turn (Narayanan et al. 2021, arXiv:2104.04473); M must be a multiple of P
///   zero_bubble  ZB-H1: the memory of 1f1b's first stage on all, weight gradients where a stage
///   would wait
///                (Qi et al. 2023, arXiv:2401.10241)
///   zero_bubble_v  two chunks a stage, the second in reverse order of the stages
///                (Qi et al. 2024, arXiv:2405.15362)
[[nodiscard]] PipelineOrder pipeline_order(PipelineSchedule schedule, const Stages& stages,
                                           int micro_batches);

/// One micro-batch forward through all segments: what an evaluation does.
[[nodiscard]] PipelineOrder forward_order(const Stages& stages);

/// One line a stage, actions as letter, micro-batch and (if stages have chunks) ".chunk":
/// "F0 F1 B0 F2 B1 B2", with I and W for the halves of B. `#` begins a comment. Throws ConfigError
/// naming `where`, line and column: unknown words, actions that are missing, twice, or before what
/// they need on their own stage.
[[nodiscard]] PipelineOrder parse_pipeline(std::string_view text, const std::string& where,
                                           const Stages& stages, int micro_batches);
[[nodiscard]] std::string to_text(const PipelineOrder& order, const Stages& stages);

/// Throws ConfigError, naming the actions, when the stages would wait for each other for ever, or
/// an action is missing or done twice.
void check_order(const PipelineOrder& order, const Stages& stages, int micro_batches,
                 const std::string& where);

/// When each action of each stage runs if a forward and either half of a backward take one unit of
/// time, a whole backward two, and messages none.
struct TimedAction {
  PipelineAction action;
  int start = 0;
  int end = 0;
};
[[nodiscard]] std::vector<std::vector<TimedAction>> unit_times(const PipelineOrder& order,
                                                               const Stages& stages);

/// Whether gradients of inputs and of weights are actions of their own.
[[nodiscard]] bool halves_backwards(const PipelineOrder& order);

/// Most micro-batches of a stage, counted by chunk, whose forward has run and whose backward has
/// not ended.
[[nodiscard]] std::vector<int> live_micro_batches(const PipelineOrder& order);

}  // namespace sw
