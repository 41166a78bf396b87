#pragma once

#include <functional>

#include "lower/schedule.hpp"
#include "lower/stages.hpp"
#include "lower/state.hpp"
#include "lower/update_rule.hpp"
#include "mesh/layout.hpp"
#include "optim/options.hpp"

/// Sharded graph -> Program of one rank.
namespace sw {

/// Parts of the head begin at whole cache lines, also of one number a token.
inline constexpr std::int64_t kHeadChunkMultiple = 16;

struct LowerOptions {
  Stages stages;
  PipelineOrder order;  ///< of a training step
  int micro_batches = 1;
  int threads = 1;         ///< of the rank's team: kernels size their scratch by it
  bool overlap = true;     ///< gradient and parameter traffic on a stream of its own
  double bucket_mib = 25;  ///< units are reduced together until they are this large
  ReduceGradients reduce_gradients = ReduceGradients::Window;
  int prefetch = 1;                   ///< units gathered ahead of their use, level 3
  bool reshard_after_forward = true;  ///< level 3: units are gathered again for the backward
  double expert_buffer = 2;           ///< room for routed slots, in even loads
  std::int64_t head_chunk = 2048;     ///< most tokens of a rank whose logits exist; 0: all
  UpdateRule update;
  OptimizerOptions optimizer;
  double balance_bias = 0;  ///< by which an update moves biases of routers
  /// Whether weight decay applies to a parameter, by name.
  std::function<bool(const Value&)> decays = [](const Value& value) { return value.decay; };
};

/// Whether a rank has room for all slots of its ep group whatever `expert_buffer` says: where
/// gradients of inputs and of weights are actions of their own, and where some layer's backward
/// brings no slots back (all before its experts is frozen), which is when further rounds would be.
[[nodiscard]] bool keeps_room_for_all_slots(const ModelGraph& model, const ShardedGraph& sharded,
                                            const PipelineOrder& order);

/// A whole training step: count, micro-batches forward and backward, reduction of gradients in
/// buckets, norm, update, gathering of parameters. `model` is a joint graph.
[[nodiscard]] Program lower_training(const ModelGraph& model, const ShardedGraph& sharded,
                                     const StatePlan& state, int rank, const LowerOptions& options);

/// One micro-batch forward, up to the loss over all ranks. `model` is a forward graph with the same
/// parameters in the same order.
[[nodiscard]] Program lower_evaluation(const ModelGraph& model, const ShardedGraph& sharded,
                                       const StatePlan& state, int rank,
                                       const LowerOptions& options);

/// One micro-batch forward up to the logits, which are where `logits` says when the Program has
/// run.
struct GenerationProgram {
  Program program;
  Operand logits;
};
[[nodiscard]] GenerationProgram lower_generation(const ModelGraph& model,
                                                 const ShardedGraph& sharded,
                                                 const StatePlan& state, int rank,
                                                 const LowerOptions& options);

}  // namespace sw
