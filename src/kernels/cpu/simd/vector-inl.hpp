// One inclusion per instruction set (Highway's foreach_target), so the guard toggles.
#if defined(SW_KERNELS_CPU_SIMD_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SW_KERNELS_CPU_SIMD_VECTOR_INL
#undef SW_KERNELS_CPU_SIMD_VECTOR_INL
#else
#define SW_KERNELS_CPU_SIMD_VECTOR_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }
HWY_INLINE Floats all(float value) { return hn::Set(FloatTag(), value); }
HWY_INLINE Floats load(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE void store(Floats value, float* to) { hn::StoreU(value, FloatTag(), to); }

/// Numbers of either type as float32.
template <typename D>
HWY_INLINE hn::Vec<D> load_as_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <typename D>
HWY_INLINE hn::Vec<D> load_as_floats(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::RebindToUnsigned<D> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}
HWY_INLINE float as_float(float value) { return value; }
HWY_INLINE float as_float(BFloat16 value) { return to_float(value); }

#if HWY_TARGET != HWY_SCALAR
/// to[k, 0 .. 3] = the k-th numbers of four rows.
template <typename T>
HWY_INLINE void turn_four(const T* row0, const T* row1, const T* row2, const T* row3,
                          std::int64_t depth, float* to, std::int64_t to_row) {
  const hn::Full128<float> d;
  const hn::Full128<double> pairs;
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const auto r0 = load_as_floats(d, row0 + k);
    const auto r1 = load_as_floats(d, row1 + k);
    const auto r2 = load_as_floats(d, row2 + k);
    const auto r3 = load_as_floats(d, row3 + k);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
    float* out = to + k * to_row;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + to_row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * to_row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * to_row);
  }
  for (; k < depth; ++k) {
    float* out = to + k * to_row;
    out[0] = as_float(row0[k]);
    out[1] = as_float(row1[k]);
    out[2] = as_float(row2[k]);
    out[3] = as_float(row3[k]);
  }
}
#endif

/// The first `count` < lanes() elements, the others 0; nothing beyond is touched.
HWY_INLINE Floats load_first(const float* from, std::int64_t count) {
  const FloatTag d;
#if HWY_TARGET == HWY_EMU128  // whose MaskedLoad reads a whole vector
  HWY_ALIGN float lane[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < count; ++i) lane[i] = from[i];
  return hn::Load(d, lane);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#endif
}
HWY_INLINE void store_first(Floats value, float* to, std::int64_t count) {
  const FloatTag d;
  hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
}

/// The same for up to lanes() elements.
HWY_INLINE Floats load_some(const float* from, std::int64_t count) {
  return count == lanes() ? load(from) : load_first(from, count);
}
HWY_INLINE void store_some(Floats value, float* to, std::int64_t count) {
  if (count == lanes()) {
    store(value, to);
  } else {
    store_first(value, to, count);
  }
}

HWY_INLINE float sum_of(Floats value) { return hn::GetLane(hn::SumOfLanes(FloatTag(), value)); }

/// to[i] = function(from[i]...) for i in [0, count); the end of an array takes the same vector
/// operations as its middle, so an element's bits do not depend on where a slice begins.
template <typename Function, typename... From>
HWY_INLINE void map(std::int64_t count, float* to, const Function& function, const From*... from) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= count; i += step) store(function(load(from + i)...), to + i);
  if (i < count) store_first(function(load_first(from + i, count - i)...), to + i, count - i);
}

/// Sum of function(from[i]...) for i in [0, count), in float32 over 4 vectors of partial sums.
/// function of zeros must be 0.
template <typename Function, typename... From>
HWY_INLINE float map_sum(std::int64_t count, const Function& function, const From*... from) {
  const std::int64_t step = lanes();
  Floats s0 = hn::Zero(FloatTag());
  Floats s1 = s0;
  Floats s2 = s0;
  Floats s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    s0 = hn::Add(s0, function(load(from + i)...));
    s1 = hn::Add(s1, function(load(from + i + step)...));
    s2 = hn::Add(s2, function(load(from + i + 2 * step)...));
    s3 = hn::Add(s3, function(load(from + i + 3 * step)...));
  }
  for (; i + step <= count; i += step) s0 = hn::Add(s0, function(load(from + i)...));
  if (i < count) s1 = hn::Add(s1, function(load_first(from + i, count - i)...));
  return sum_of(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// exp of kCount vectors of what is at most 88, about 1 ulp; 0 below -87, and keeps NaN. Highway's
/// converts to integers and scales in two steps, for results that are not normal numbers: slower by
/// half. Several vectors go step by step together, since each waits for itself at every step.
template <int kCount>
HWY_INLINE void exponentials_up_to_88(Floats (&x)[kCount]) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const Floats shift = all(12582912.0F);
  Floats shifted[kCount];
  Floats r[kCount];
  Floats r2[kCount];
  Floats p[kCount];
  // x = n ln 2 + r. Added to 1.5 * 2^23, n rounds to an integer and lies in the lowest bits.
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) shifted[i] = hn::MulAdd(x[i], all(1.44269504F), shift);
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    const Floats n = hn::Sub(shifted[i], shift);
    r[i] = hn::NegMulAdd(n, all(0.693145751953125F), x[i]);
    r[i] = hn::NegMulAdd(n, all(1.428606765330187e-6F), r[i]);
  }
  // 1 + r + r^2 p(r): Highway's coefficients.
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    r2[i] = hn::Mul(r[i], r[i]);
    p[i] = hn::MulAdd(r[i], all(0.000198527617F), all(0.00139304355F));
    p[i] = hn::MulAdd(p[i], r2[i], hn::MulAdd(r[i], all(0.00833336077F), all(0.0416664853F)));
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    p[i] = hn::MulAdd(p[i], r2[i], hn::MulAdd(r[i], all(0.16666667F), all(0.5F)));
    p[i] = hn::Add(hn::MulAdd(p[i], r2[i], r[i]), all(1.0F));
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, shifted[i]));
    const Floats power = hn::BitCast(d, hn::Add(exponent, hn::BitCast(integers, all(1.0F))));
    x[i] = hn::IfThenZeroElse(hn::Lt(x[i], all(-87.0F)), hn::Mul(p[i], power));
  }
}
HWY_INLINE Floats exponential_up_to_88(Floats x) {
  Floats one[] = {x};
  exponentials_up_to_88(one);
  return one[0];
}

/// exp of anything: saturates at e^88.
HWY_INLINE Floats exponential(Floats x) {
  const Floats most = all(88.0F);
  return exponential_up_to_88(hn::IfThenElse(hn::Gt(x, most), most, x));
}

HWY_INLINE Floats sigmoid(Floats x) {
  const Floats one = all(1.0F);
  return hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
}

/// The larger one; NaN if either is.
HWY_INLINE Floats larger(Floats x, Floats y) {
  const Floats number = hn::IfThenElse(hn::Gt(y, x), y, x);
  return hn::IfThenElse(hn::Eq(y, y), number, y);  // not hn::Ne: on AVX2 it is false for NaN
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
