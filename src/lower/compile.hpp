#pragma once

#include <string>
#include <vector>

#include "lower/lower.hpp"
#include "mesh/layout.hpp"
#include "model/config.hpp"

/// From what a run file says to the Programs of each rank: the one way there, for plan, train,
/// verify and generate.
namespace sw {

/// What the Programs of a run depend on: values only, so that a Program for a machine one does not
/// have is an ordinary Program.
struct CompileOptions {
  ModelConfig model;
  ParallelOptions parallel;
  OptimizerOptions optimizer;
  DType precision = DType::Float32;
  DType gradient_precision = DType::Float32;
  std::int64_t micro_batch = 1;   ///< sequences per micro-batch and data-parallel rank
  std::int64_t accumulation = 1;  ///< micro-batches per window
  std::int64_t sequence = 0;
  std::int64_t head_chunk = 2048;   ///< most tokens of a rank whose logits exist; 0: all
  std::vector<std::string> freeze;  ///< weight name patterns (`*` and `?`)
  int threads = 1;                  ///< of a rank's team
  /// Only forwards: weights without gradients and optimizer state.
  bool train = true;
};

/// A run compiled as far as it is the same for all ranks.
class Compilation {
 public:
  /// Throws ConfigError for sizes that the layout must divide, and for patterns that match no
  /// weight.
  explicit Compilation(CompileOptions options);

  [[nodiscard]] const CompileOptions& options() const { return options_; }
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  [[nodiscard]] int world() const { return mesh_.world(); }
  /// The joint graph of a micro-batch over all data-parallel ranks, and its placements.
  [[nodiscard]] const ModelGraph& model() const { return joint_; }
  [[nodiscard]] const ShardedGraph& sharded() const { return sharded_; }

  [[nodiscard]] StatePlan state(int rank) const;
  [[nodiscard]] Program training(int rank) const;
  [[nodiscard]] Program evaluation(int rank) const;
  [[nodiscard]] GenerationProgram generation(int rank) const;

  /// Rows of one micro-batch (of all data-parallel ranks) that `rank` reads.
  [[nodiscard]] Range rows(int rank) const;
  /// Columns of a row in the order in which ranks hold them: 2·cp chunks of which context-parallel
  /// rank i has i and 2·cp - 1 - i, so that all have as much causal attention to do. Empty: as they
  /// are (no cp; or dropout, whose masks go by the place in the tensor).
  [[nodiscard]] std::vector<std::int64_t> column_order() const;
  /// Columns, in that order, that `rank` holds.
  [[nodiscard]] Range columns(int rank) const;
  /// The pipeline stage that `rank` works in.
  [[nodiscard]] int stage(int rank) const;
  /// Sequences of one micro-batch over all data-parallel ranks, and of a window.
  [[nodiscard]] std::int64_t rows_per_micro_batch() const;
  [[nodiscard]] std::int64_t rows_per_window() const;
  /// More than one in an asynchronous pipeline.
  [[nodiscard]] int updates_per_window() const;
  [[nodiscard]] bool asynchronous() const { return update_.asynchronous(); }
  /// Rows of a window, in order, whose gradients an update adds up.
  [[nodiscard]] std::int64_t rows_per_update() const;
  /// Model FLOPs of one window (6 · parameters + 12 · layers · width · sequence, a token): the
  /// field's formula, for the MFU.
  [[nodiscard]] double model_flops_per_window() const;
  /// What is allowed and yet may not be meant: lines of the plan that `train` prints as well.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  [[nodiscard]] LowerOptions lower_options() const;
  void find_homes();
  /// Choices that nobody asked for by name: lines of the plan.
  [[nodiscard]] std::vector<std::string> notes() const;

  CompileOptions options_;
  Mesh mesh_;
  Stages stages_;
  PipelineOrder order_;
  UpdateRule update_;
  std::vector<std::vector<int>> homes_;
  ModelGraph joint_;
  ShardedGraph sharded_;
  ModelGraph forward_;
  ShardedGraph sharded_forward_;
};

/// Whether `name` matches a pattern with `*` (any run of characters) and `?` (any one).
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

}  // namespace sw
