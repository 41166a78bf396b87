#include "kernels/cpu/simd/elementwise.hpp"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/elementwise.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {

void bfloat16_to_float(const BFloat16* x, float* y, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> words;
  const hn::Rebind<std::uint16_t, FloatTag> halves;
  const auto* bits = reinterpret_cast<const std::uint16_t*>(x);
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    const auto wide = hn::PromoteTo(words, hn::LoadU(halves, bits + i));
    store(hn::BitCast(d, hn::ShiftLeft<16>(wide)), y + i);
  }
  for (; i < count; ++i) y[i] = to_float(x[i]);
}

void float_to_bfloat16(const float* x, BFloat16* y, std::int64_t count) {
  const hn::RebindToUnsigned<FloatTag> words;
  const hn::RebindToSigned<FloatTag> integers;
  const hn::Rebind<std::uint16_t, FloatTag> halves;
  auto* out = reinterpret_cast<std::uint16_t*>(y);
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    const Floats value = load(x + i);
    const auto bits = hn::BitCast(words, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(words, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(words, 0x7fff)), odd));
    const auto quiet = hn::Or(upper, hn::Set(words, 0x40));
    // Not hn::Ne: on AVX2 it is false for NaN.
    const auto is_number = hn::RebindMask(words, hn::Eq(value, value));
    const auto result = hn::IfThenElse(is_number, rounded, quiet);
    hn::StoreU(hn::DemoteTo(halves, hn::BitCast(integers, result)), halves, out + i);
  }
  for (; i < count; ++i) y[i] = to_bfloat16(x[i]);
}

void add(const float* a, const float* b, float* y, std::int64_t count) {
  map(
      count, y, [](Floats u, Floats v) HWY_ATTR { return hn::Add(u, v); }, a, b);
}

void scale(const float* x, float factor, float* y, std::int64_t count) {
  const Floats f = all(factor);
  map(
      count, y, [f](Floats u) HWY_ATTR { return hn::Mul(u, f); }, x);
}

/// 2 sqrt(2/pi) and the cubic coefficient of Gelu's tanh form.
constexpr float kGeluScale = 1.5957691216057308F;
constexpr float kGeluCubic = 0.044715F;

void gelu_tanh(const float* x, float* y, std::int64_t count) {
  map(
      count, y,
      [](Floats v) HWY_ATTR {
        const Floats square = hn::Mul(v, v);
        const Floats inner =
            hn::Mul(all(kGeluScale), hn::MulAdd(hn::Mul(square, v), all(kGeluCubic), v));
        return hn::Mul(v, sigmoid(inner));
      },
      x);
}

void gelu_tanh_grad(const float* x, const float* dy, float* dx, std::int64_t count) {
  map(
      count, dx,
      [](Floats v, Floats g) HWY_ATTR {
        const Floats square = hn::Mul(v, v);
        const Floats inner =
            hn::Mul(all(kGeluScale), hn::MulAdd(hn::Mul(square, v), all(kGeluCubic), v));
        const Floats s = sigmoid(inner);
        const Floats slope =
            hn::Mul(all(kGeluScale), hn::MulAdd(square, all(3 * kGeluCubic), all(1.0F)));
        // s + v * s * (1 - s) * slope
        const Floats bend = hn::Mul(hn::Mul(v, slope), hn::NegMulAdd(s, s, s));
        return hn::Mul(g, hn::Add(s, bend));
      },
      x, dy);
}

void swiglu(const float* gate, const float* up, float* y, std::int64_t count) {
  map(
      count, y, [](Floats g, Floats u) HWY_ATTR { return hn::Mul(hn::Mul(g, sigmoid(g)), u); },
      gate, up);
}

HWY_INLINE void swiglu_grad_at(Floats g, Floats u, Floats dy, Floats& dg, Floats& du) {
  const Floats s = sigmoid(g);
  const Floats silu = hn::Mul(g, s);
  du = hn::Mul(dy, silu);
  // silu' = s + silu * (1 - s)
  dg = hn::Mul(hn::Mul(dy, u), hn::Add(s, hn::NegMulAdd(silu, s, silu)));
}

void swiglu_grad(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                 std::int64_t count) {
  Floats dg;
  Floats du;
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    swiglu_grad_at(load(gate + i), load(up + i), load(dy + i), dg, du);
    store(dg, dgate + i);
    store(du, dup + i);
  }
  if (const std::int64_t rest = count - i; rest > 0) {
    swiglu_grad_at(load_first(gate + i, rest), load_first(up + i, rest), load_first(dy + i, rest),
                   dg, du);
    store_first(dg, dgate + i, rest);
    store_first(du, dup + i, rest);
  }
}

void sigmoid_of(const float* x, float* y, std::int64_t count) {
  map(
      count, y, [](Floats v) HWY_ATTR { return sigmoid(v); }, x);
}

void sigmoid_grad(const float* x, const float* dy, float* dx, std::int64_t count) {
  map(
      count, dx,
      [](Floats v, Floats g) HWY_ATTR {
        const Floats s = sigmoid(v);
        return hn::Mul(g, hn::NegMulAdd(s, s, s));
      },
      x, dy);
}

void cosine_sine(double position, const double* frequencies, float* cosine, float* sine,
                 std::int64_t count) {
  constexpr double kTurn = 2 * std::numbers::pi;
  for (std::int64_t i = 0; i < count; ++i) {
    const double angle = position * frequencies[i];
    cosine[i] = static_cast<float>(angle - kTurn * std::nearbyint(angle * (1 / kTurn)));
  }
  const FloatTag d;
  map(
      count, sine, [d](Floats v) HWY_ATTR { return hn::Sin(d, v); }, cosine);
  map(
      count, cosine, [d](Floats v) HWY_ATTR { return hn::Cos(d, v); }, cosine);
}

void rotate(const float* x0, const float* x1, const float* cosine, const float* sine, float* y0,
            float* y1, std::int64_t count) {
  const auto at = [](Floats a, Floats b, Floats c, Floats s, Floats& first, Floats& second)
                      HWY_ATTR {
                        first = hn::NegMulAdd(b, s, hn::Mul(a, c));
                        second = hn::MulAdd(a, s, hn::Mul(b, c));
                      };
  Floats first;
  Floats second;
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    at(load(x0 + i), load(x1 + i), load(cosine + i), load(sine + i), first, second);
    store(first, y0 + i);
    store(second, y1 + i);
  }
  if (const std::int64_t rest = count - i; rest > 0) {
    at(load_first(x0 + i, rest), load_first(x1 + i, rest), load_first(cosine + i, rest),
       load_first(sine + i, rest), first, second);
    store_first(first, y0 + i, rest);
    store_first(second, y1 + i, rest);
  }
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(bfloat16_to_float);
HWY_EXPORT(float_to_bfloat16);
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(gelu_tanh);
HWY_EXPORT(gelu_tanh_grad);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_grad);
HWY_EXPORT(sigmoid_of);
HWY_EXPORT(sigmoid_grad);
HWY_EXPORT(cosine_sine);
HWY_EXPORT(rotate);

void bfloat16_to_float(const BFloat16* x, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(bfloat16_to_float)(x, y, count);
}
void float_to_bfloat16(const float* x, BFloat16* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(float_to_bfloat16)(x, y, count);
}
void add(const float* a, const float* b, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(add)(a, b, y, count);
}
void scale(const float* x, float factor, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale)(x, factor, y, count);
}
void gelu_tanh(const float* x, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh)(x, y, count);
}
void gelu_tanh_grad(const float* x, const float* dy, float* dx, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_grad)(x, dy, dx, count);
}
void swiglu(const float* gate, const float* up, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(swiglu)(gate, up, y, count);
}
void swiglu_grad(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                 std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(swiglu_grad)(gate, up, dy, dgate, dup, count);
}
void sigmoid(const float* x, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(sigmoid_of)(x, y, count);
}
void sigmoid_grad(const float* x, const float* dy, float* dx, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(sigmoid_grad)(x, dy, dx, count);
}
void cosine_sine(double position, const double* frequencies, float* cosine, float* sine,
                 std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(cosine_sine)(position, frequencies, cosine, sine, count);
}
void rotate(const float* x0, const float* x1, const float* cosine, const float* sine, float* y0,
            float* y1, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(rotate)(x0, x1, cosine, sine, y0, y1, count);
}

}  // namespace sw::kernels::simd
#endif
