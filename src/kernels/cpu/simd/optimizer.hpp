#pragma once

#include <cstdint>

#include "kernels/kernel.hpp"

namespace sw::kernels::simd {

/// Elements [begin, end) of a step, whose gradients, as float32, begin at `gradients`.
/// `corrected_rate` is learning_rate / (1 - beta1^t),
/// `inverse_root` is 1 / sqrt(1 - beta2^t), `keep` is 1 - learning_rate * weight_decay.
struct AdamwFactors {
  float corrected_rate;
  float inverse_root;
  float keep;
};
void adamw(const AdamwStep& step, const float* gradients, const AdamwScalars& scalars,
           const AdamwFactors& factors, std::int64_t begin, std::int64_t end);

struct SgdFactors {
  float learning_rate;
  float momentum;
  float gradient_scale;
  bool first;  ///< the first update: the momentum starts as the gradient
};
void sgd(const SgdStep& step, const float* gradients, const SgdFactors& factors, std::int64_t begin,
         std::int64_t end);

/// Sum of squares in float64, in an order that is the same for every instruction set.
[[nodiscard]] double sum_of_squares(const float* x, std::int64_t count);

}  // namespace sw::kernels::simd
