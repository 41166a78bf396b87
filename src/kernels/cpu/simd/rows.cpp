#include "kernels/cpu/simd/rows.hpp"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/rows.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {

float sum(const float* x, std::int64_t count) {
  return map_sum(
      count, [](Floats v) HWY_ATTR { return v; }, x);
}

float dot(const float* x, const float* y, std::int64_t count) {
  return map_sum(
      count, [](Floats u, Floats v) HWY_ATTR { return hn::Mul(u, v); }, x, y);
}

float squared_deviation(const float* x, float mean, std::int64_t count) {
  const Floats center = all(mean);
  const std::int64_t whole = count - count % lanes();
  float result = map_sum(
      whole,
      [center](Floats v) HWY_ATTR {
        const Floats deviation = hn::Sub(v, center);
        return hn::Mul(deviation, deviation);
      },
      x);
  for (std::int64_t i = whole; i < count; ++i) result += (x[i] - mean) * (x[i] - mean);
  return result;
}

float maximum(const float* x, std::int64_t count) {
  const FloatTag d;
  Floats most = all(-std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) most = larger(most, load(x + i));
  float result = x[0];
  HWY_ALIGN float lane[hn::MaxLanes(d)];
  hn::Store(most, d, lane);
  const auto take = [&result](float value) {
    if (value > result || value != value) result = value;
  };
  for (std::int64_t j = 0; j < lanes(); ++j) take(lane[j]);
  for (; i < count; ++i) take(x[i]);
  return result;
}

void normalize(const float* x, float mean, float factor, const float* w, const float* b, float* y,
               std::int64_t count) {
  const Floats center = all(mean);
  const Floats f = all(factor);
  if (b == nullptr) {
    map(
        count, y,
        [center, f](Floats v, Floats weight)
            HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, center), f), weight); },
        x, w);
    return;
  }
  map(
      count, y,
      [center, f](Floats v, Floats weight, Floats bias)
          HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, center), f), weight, bias); },
      x, w, b);
}

NormSums norm_sums(const float* x, const float* dy, const float* w, float mean, float factor,
                   std::int64_t count) {
  const Floats center = all(mean);
  const Floats f = all(factor);
  NormSums sums;
  sums.g = map_sum(
      count, [](Floats g, Floats weight) HWY_ATTR { return hn::Mul(g, weight); }, dy, w);
  sums.g_n = map_sum(
      count,
      [center, f](Floats v, Floats g, Floats weight)
          HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, center), f), hn::Mul(g, weight)); },
      x, dy, w);
  return sums;
}

void norm_grad(const NormRow& row, float* dx, float* dw, float* db, std::int64_t count) {
  const Floats center = all(row.mean);
  const Floats f = all(row.factor);
  const Floats mean_g = all(row.mean_g);
  const Floats mean_g_n = all(row.mean_g_n);
  const auto normal = [center, f](Floats v) HWY_ATTR { return hn::Mul(hn::Sub(v, center), f); };
  map(
      count, dw,
      [normal](Floats sum_so_far, Floats v, Floats g)
          HWY_ATTR { return hn::MulAdd(g, normal(v), sum_so_far); },
      dw, row.x, row.dy);
  if (db != nullptr) {
    map(
        count, db, [](Floats so_far, Floats g) HWY_ATTR { return hn::Add(so_far, g); }, db, row.dy);
  }
  map(
      count, dx,
      [normal, f, mean_g, mean_g_n](Floats v, Floats g, Floats weight) HWY_ATTR {
        const Floats centered = hn::Sub(hn::Mul(g, weight), mean_g);
        return hn::Mul(f, hn::NegMulAdd(normal(v), mean_g_n, centered));
      },
      row.x, row.dy, row.w);
}

double sum_of_exponentials(const float* x, float most, std::int64_t count) {
  // Blocks in float32, their sums in float64: a row of a vocabulary is long.
  constexpr std::int64_t kBlock = 1024;
  const Floats top = all(most);
  const auto term = [top](Floats v) HWY_ATTR { return exponential_up_to_88(hn::Sub(v, top)); };
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, count - begin);
    const std::int64_t whole = size - size % lanes();
    total += static_cast<double>(map_sum(whole, term, x + begin));
    if (whole < size) {
      const FloatTag d;
      const Floats last = term(load_first(x + begin + whole, size - whole));
      const auto valid = hn::FirstN(d, static_cast<std::size_t>(size - whole));
      total += static_cast<double>(sum_of(hn::IfThenElseZero(valid, last)));
    }
  }
  return total;
}

void exponentials(const float* x, float most, float factor, float* y, std::int64_t count) {
  const Floats top = all(most);
  const Floats f = all(factor);
  map(
      count, y,
      [top, f](Floats v) HWY_ATTR { return hn::Mul(exponential_up_to_88(hn::Sub(v, top)), f); }, x);
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(sum);
HWY_EXPORT(dot);
HWY_EXPORT(squared_deviation);
HWY_EXPORT(maximum);
HWY_EXPORT(normalize);
HWY_EXPORT(norm_sums);
HWY_EXPORT(norm_grad);
HWY_EXPORT(sum_of_exponentials);
HWY_EXPORT(exponentials);

float sum(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(sum)(x, count); }
float dot(const float* x, const float* y, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(dot)(x, y, count);
}
float squared_deviation(const float* x, float mean, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(squared_deviation)(x, mean, count);
}
float maximum(const float* x, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(maximum)(x, count);
}
void normalize(const float* x, float mean, float factor, const float* w, const float* b, float* y,
               std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(normalize)(x, mean, factor, w, b, y, count);
}
NormSums norm_sums(const float* x, const float* dy, const float* w, float mean, float factor,
                   std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(norm_sums)(x, dy, w, mean, factor, count);
}
void norm_grad(const NormRow& row, float* dx, float* dw, float* db, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(norm_grad)(row, dx, dw, db, count);
}
double sum_of_exponentials(const float* x, float most, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_of_exponentials)(x, most, count);
}
void exponentials(const float* x, float most, float factor, float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(exponentials)(x, most, factor, y, count);
}

}  // namespace sw::kernels::simd
#endif
