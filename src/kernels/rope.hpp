#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel.hpp"

namespace sw::kernels {

/// Radians per position of each of the head_size / 2 pairs, scaled as the parameters say. Source:
/// `_compute_llama3_parameters` and the linear rule of `modeling_rope_utils` in `transformers`.
[[nodiscard]] std::vector<double> rope_frequencies(const RopeParameters& parameters,
                                                   std::int64_t head_size);

}  // namespace sw::kernels
