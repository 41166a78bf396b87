#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace sw {

/// Sizes of the mesh axes, outermost first. `ep` is the inner part of dp x cp and multiplies
/// nothing.
struct Layout {
  int pp = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;
  [[nodiscard]] int world() const { return pp * dp * cp * tp; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Gradients cross the wire once a window, or once a micro-batch.
enum class ReduceGradients : std::uint8_t { Window, MicroBatch };
enum class ContextAlgorithm : std::uint8_t { Ring, Gather, AllToAll };
enum class PipelineSchedule : std::uint8_t {
  GPipe,
  OneForwardOneBackward,
  Interleaved,
  ZeroBubble,
  ZeroBubbleV,
  PipeDream,
  PipeDream2BW,
};
enum class Recompute : std::uint8_t { None, Selective, Full };
enum class Offload : std::uint8_t { None, Optimizer, Parameters };
enum class Backend : std::uint8_t { Local, Shm, Mpi, Nccl };

/// [parallel] of a run file: configuration only, never a change of code or data.
struct ParallelOptions {
  Layout layout;
  bool sequence_parallel = true;
  int zero = 1;
  int zero_group = 0;  ///< ranks a level shards over; 0 = all of dp x cp
  ReduceGradients reduce_gradients = ReduceGradients::Window;
  int prefetch = 1;                   ///< units gathered ahead, level 3
  bool reshard_after_forward = true;  ///< level 3: gathered again for the backward
  double bucket_mib = 25;
  bool overlap = true;
  bool keep_gathered = false;
  ContextAlgorithm context = ContextAlgorithm::Ring;
  bool gather_before_dispatch = false;
  double expert_buffer = 2;  ///< room for routed slots, in even loads; more go in further rounds
  PipelineSchedule pipeline = PipelineSchedule::OneForwardOneBackward;
  int virtual_stages = 1;
  std::vector<int> stage_layers;  ///< empty = balanced by cost
  std::string pipeline_file;
  Recompute recompute = Recompute::None;
  Offload offload = Offload::None;
  double offload_gb_per_s = 0;  ///< of the link to the host, each way; 0 = as fast as memory
  Backend communicator = Backend::Shm;
  Algorithm algorithm = Algorithm::Direct;
  int threads_per_rank = 0;  ///< 0 = cores / local ranks, at least 1
  double deadline_s = 30;
  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

/// Where the data-parallel ranks, dp x cp with cp innermost, are cut: something lies on that many
/// neighbours only (a sample on cp, the experts of a layer on ep, slices of state on a zero group).
/// Ascending, without 1, and at the end dp x cp itself. Each must divide the next.
[[nodiscard]] std::vector<int> data_cuts(const ParallelOptions& parallel);

}  // namespace sw
