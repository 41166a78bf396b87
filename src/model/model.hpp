#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "graph/graph.hpp"
#include "model/config.hpp"

namespace sw {

/// Writes the forward of one micro-batch of `micro_batch` sequences of `sequence` tokens, loss
/// included, on whole shapes. Activations and parameters are `activation`; logits are float32.
/// Dropouts with a rate above 0 are in the graph: pass `for_evaluation(config)` for a graph that
/// does not train. Throws ConfigError for sizes that the model does not have.
[[nodiscard]] ModelGraph build(const ModelConfig& config, std::int64_t micro_batch,
                               std::int64_t sequence, DType activation);

}  // namespace sw
