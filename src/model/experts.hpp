#pragma once

#include <string>

#include "base/json.hpp"
#include "model/config.hpp"
#include "model/config_reader.hpp"
#include "model/forward.hpp"
#include "model/specs.hpp"

/// Layers whose feed-forward is a mixture of experts: a router chooses for each token the experts
/// that see it, and nothing is dropped.
/// Source: Shazeer et al. 2017, arXiv:1701.06538; as in the `transformers` library's Mixtral,
/// Qwen2Moe and Qwen3Moe.
namespace sw::experts {

/// Experts of a config.json, their sizes and choices; refuses what would change the computation.
void read(ConfigReader& reader, ModelConfig& config);
void write(const ModelConfig& config, Json& json);

[[nodiscard]] bool in_layer(const ModelConfig& config, int layer);

/// The router and all experts of a layer, but for the expert that every token sees.
void add(Specs& specs, const ModelConfig& config, const std::string& layer_prefix);
/// x [B,S,D] -> the sum over each token's experts, weighted [B,S,D].
[[nodiscard]] ValueId forward(Forward& f, ValueId x, const std::string& layer_prefix);

}  // namespace sw::experts
