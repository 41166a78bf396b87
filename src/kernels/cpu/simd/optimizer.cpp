#include "kernels/cpu/simd/optimizer.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/optimizer.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {

struct AdamwVectors {
  Floats gradient;
  Floats master;
  Floats momentum;
  Floats variance;
};

HWY_INLINE void adamw_at(AdamwVectors& x, const AdamwScalars& s, const AdamwFactors& f) {
  const Floats g = hn::Mul(x.gradient, all(s.gradient_scale));
  // As torch: m += (1 - beta1) (g - m), v = beta2 v + (1 - beta2) g^2.
  x.momentum = hn::MulAdd(hn::Sub(g, x.momentum), all(1 - s.beta1), x.momentum);
  x.variance = hn::MulAdd(x.variance, all(s.beta2), hn::Mul(hn::Mul(g, g), all(1 - s.beta2)));
  const Floats root = hn::MulAdd(hn::Sqrt(x.variance), all(f.inverse_root), all(s.epsilon));
  const Floats direction = hn::Div(x.momentum, root);
  x.master = hn::NegMulAdd(direction, all(f.corrected_rate), hn::Mul(x.master, all(f.keep)));
}

void adamw(const AdamwStep& step, const float* gradients, const AdamwScalars& scalars,
           const AdamwFactors& factors, std::int64_t begin, std::int64_t end) {
  const std::int64_t count = end - begin;
  const float* g = gradients;
  float* w = step.master + begin;
  float* m = step.momentum + begin;
  float* v = step.variance + begin;
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    AdamwVectors x{load(g + i), load(w + i), load(m + i), load(v + i)};
    adamw_at(x, scalars, factors);
    store(x.master, w + i);
    store(x.momentum, m + i);
    store(x.variance, v + i);
  }
  if (const std::int64_t rest = count - i; rest > 0) {
    AdamwVectors x{load_first(g + i, rest), load_first(w + i, rest), load_first(m + i, rest),
                   load_first(v + i, rest)};
    adamw_at(x, scalars, factors);
    store_first(x.master, w + i, rest);
    store_first(x.momentum, m + i, rest);
    store_first(x.variance, v + i, rest);
  }
}

void sgd(const SgdStep& step, const float* gradients, const SgdFactors& f, std::int64_t begin,
         std::int64_t end) {
  const std::int64_t count = end - begin;
  const float* g = gradients;
  float* w = step.master + begin;
  const Floats decay = all(step.weight_decay);
  const Floats scale = all(f.gradient_scale);
  const Floats rate = all(f.learning_rate);
  const auto decayed = [scale, decay](Floats gradient, Floats weight)
                           HWY_ATTR { return hn::MulAdd(weight, decay, hn::Mul(gradient, scale)); };
  if (step.momentum == nullptr) {
    map(
        count, w,
        [decayed, rate](Floats weight, Floats gradient)
            HWY_ATTR { return hn::NegMulAdd(decayed(gradient, weight), rate, weight); },
        w, g);
    return;
  }
  float* m = step.momentum + begin;
  const Floats keep = all(f.momentum);
  const bool first = f.first;
  map(
      count, m,
      [decayed, keep, first](Floats moment, Floats gradient, Floats weight) HWY_ATTR {
        const Floats change = decayed(gradient, weight);
        return first ? change : hn::MulAdd(moment, keep, change);
      },
      m, g, w);
  map(
      count, w,
      [rate](Floats weight, Floats moment) HWY_ATTR { return hn::NegMulAdd(moment, rate, weight); },
      w, m);
}

double sum_of_squares(const float* x, std::int64_t count) {
  constexpr std::int64_t kSums = 16;
  double sum[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      sum[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    }
  }
  for (std::int64_t j = 0; i + j < count; ++j) {
    sum[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  for (std::int64_t width = kSums / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) sum[j] += sum[j + width];
  }
  return sum[0];
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(adamw);
HWY_EXPORT(sgd);
HWY_EXPORT(sum_of_squares);

void adamw(const AdamwStep& step, const float* gradients, const AdamwScalars& scalars,
           const AdamwFactors& factors, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(adamw)(step, gradients, scalars, factors, begin, end);
}
void sgd(const SgdStep& step, const float* gradients, const SgdFactors& factors, std::int64_t begin,
         std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(sgd)(step, gradients, factors, begin, end);
}
double sum_of_squares(const float* x, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares)(x, count);
}

}  // namespace sw::kernels::simd
#endif
