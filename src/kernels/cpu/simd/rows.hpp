#pragma once

#include <cstdint>

/// What is done with one row of float32 numbers: norms, the softmax of the loss.
namespace sw::kernels::simd {

[[nodiscard]] float sum(const float* x, std::int64_t count);
[[nodiscard]] float dot(const float* x, const float* y, std::int64_t count);
/// Sum of (x - mean)^2.
[[nodiscard]] float squared_deviation(const float* x, float mean, std::int64_t count);
/// NaN if any is.
[[nodiscard]] float maximum(const float* x, std::int64_t count);

/// y = (x - mean) * factor * w + b; b may be null.
void normalize(const float* x, float mean, float factor, const float* w, const float* b, float* y,
               std::int64_t count);

/// One row of a norm's gradient. With n = (x - mean) * factor and g = dy * w: the sums of g and of
/// g * n over the row.
struct NormSums {
  float g = 0;
  float g_n = 0;
};
[[nodiscard]] NormSums norm_sums(const float* x, const float* dy, const float* w, float mean,
                                 float factor, std::int64_t count);
/// dx = factor * (g - mean_g - n * mean_g_n); dw += dy * n; db += dy unless null. dx may be x or
/// dy.
struct NormRow {
  const float* x;
  const float* dy;
  const float* w;
  float mean;
  float factor;
  float mean_g;
  float mean_g_n;
};
void norm_grad(const NormRow& row, float* dx, float* dw, float* db, std::int64_t count);

/// Sum of exp(x - most).
[[nodiscard]] double sum_of_exponentials(const float* x, float most, std::int64_t count);
/// y = exp(x - most) * factor.
void exponentials(const float* x, float most, float factor, float* y, std::int64_t count);

}  // namespace sw::kernels::simd
