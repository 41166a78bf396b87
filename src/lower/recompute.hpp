#pragma once

#include "mesh/layout.hpp"
#include "sharding/sharding.hpp"

namespace sw {

/// Drops what a layer's forward makes and makes it again, with its collectives, right before the
/// layer's backward reads it. Full: a layer keeps its input only. Selective: it keeps also what
/// matrix products, attention and reductions made; norms, activations and the like are made again.
/// The same kernels run on the same operands, so no bit changes.
/// Source: Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198.
[[nodiscard]] ShardedGraph recompute(const ModelGraph& model, const ShardedGraph& sharded,
                                     Recompute what);

}  // namespace sw
