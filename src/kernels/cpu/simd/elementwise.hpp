#pragma once

#include <cstdint>

#include "base/dtype.hpp"

/// Elementwise arithmetic on float32 arrays with the widest instructions of the machine. `y` may be
/// any of the inputs.
namespace sw::kernels::simd {

void bfloat16_to_float(const BFloat16* x, float* y, std::int64_t count);
/// As sw::to_bfloat16: to nearest, ties to even, NaN stays NaN.
void float_to_bfloat16(const float* x, BFloat16* y, std::int64_t count);

void add(const float* a, const float* b, float* y, std::int64_t count);
void scale(const float* x, float factor, float* y, std::int64_t count);

/// x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): the same function as the form with tanh, without
/// its cancellation.
void gelu_tanh(const float* x, float* y, std::int64_t count);
void gelu_tanh_grad(const float* x, const float* dy, float* dx, std::int64_t count);
void swiglu(const float* gate, const float* up, float* y, std::int64_t count);
/// Outputs may be the inputs.
void swiglu_grad(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                 std::int64_t count);

void sigmoid(const float* x, float* y, std::int64_t count);
void sigmoid_grad(const float* x, const float* dy, float* dx, std::int64_t count);

/// cosine[i], sine[i] of position * frequencies[i], the angle reduced in float64.
void cosine_sine(double position, const double* frequencies, float* cosine, float* sine,
                 std::int64_t count);
/// (y0, y1) = (x0 c - x1 s, x1 c + x0 s).
void rotate(const float* x0, const float* x1, const float* cosine, const float* sine, float* y0,
            float* y1, std::int64_t count);

}  // namespace sw::kernels::simd
