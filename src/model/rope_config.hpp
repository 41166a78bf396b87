#pragma once

#include <cstdint>

#include "base/json.hpp"
#include "kernels/kernel.hpp"
#include "model/config_reader.hpp"

namespace sw {

/// The rotary parameters of a config.json in every published spelling: `rope_theta` beside
/// `rope_scaling` ("type" or "rope_type"), or both inside `rope_parameters`, flat or once per layer
/// type. Kinds: default, linear, llama3; any other, and keys that a kind does not know, are refused
/// with their value. `default_theta` is what an absent `rope_theta` means.
[[nodiscard]] kernels::RopeParameters read_rope(ConfigReader& reader, std::int64_t max_positions,
                                                double default_theta);

/// Writes `rope_theta` and `rope_scaling`, which `transformers` 4 and 5 both read.
void write_rope(const kernels::RopeParameters& rope, Json& json);

}  // namespace sw
