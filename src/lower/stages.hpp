#pragma once

#include <vector>

#include "mesh/layout.hpp"
#include "sharding/sharding.hpp"

/// How a model is cut along its depth: into segments, of which a pipeline stage runs one or, with
/// virtual stages, several.
namespace sw {

struct Stages {
  int stages = 1;
  int chunks = 1;       ///< segments of each stage
  bool folded = false;  ///< V: the second chunk of a stage comes back from the last to the first
  std::vector<int> layers;  ///< decoder layers of each segment, from the first to the last

  [[nodiscard]] int segments() const { return stages * chunks; }
  [[nodiscard]] int stage_of(int segment) const;
  /// The segment that is a stage's chunk.
  [[nodiscard]] int segment_of(int stage, int chunk) const;
  /// The segment that a decoder layer lies in.
  [[nodiscard]] int segment_of_layer(int layer) const;
};

/// Cuts the layers as `stage_layers` says, or so that the segment with most arithmetic has least of
/// it; the embedding counts with the first segment, head and loss with the last. Throws
/// ConfigError.
[[nodiscard]] Stages cut_into_stages(const ModelGraph& forward, const ParallelOptions& options);

/// The segment that runs each step of a sharded graph; -1 for loads, which whoever needs them does.
[[nodiscard]] std::vector<int> segments_of_steps(const ModelGraph& model,
                                                 const ShardedGraph& sharded, const Stages& stages);

}  // namespace sw
