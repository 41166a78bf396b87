#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernel.hpp"

namespace sw::kernels {
namespace {

std::vector<float> random_numbers(std::int64_t count, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<BFloat16> rounded(const std::vector<float>& values) {
  std::vector<BFloat16> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), to_bfloat16);
  return result;
}

std::vector<float> widened(const std::vector<BFloat16>& values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [](BFloat16 value) { return to_float(value); });
  return result;
}

/// Weights and moments of one optimizer.
struct Weights {
  std::vector<float> master;
  std::vector<float> momentum;
  std::vector<float> variance;
  std::vector<BFloat16> rounded;

  explicit Weights(std::int64_t count)
      : master(random_numbers(count, 1, 1)),
        momentum(master.size(), 0.0F),
        variance(master.size(), 0.0F),
        rounded(master.size()) {}

  template <typename T>
  void step_adamw(Team& team, const std::vector<T>& gradient, const AdamwScalars& scalars,
                  std::int64_t begin, std::int64_t end) {
    adamw(team,
          {.count = end - begin,
           .gradient = gradient.data() + begin,
           .master = master.data() + begin,
           .momentum = momentum.data() + begin,
           .variance = variance.data() + begin,
           .rounded = rounded.data() + begin,
           .weight_decay = 0.1F},
          scalars);
  }
};

AdamwScalars scalars_of(std::int64_t update) {
  return {.learning_rate = 1e-2F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .epsilon = 1e-8F,
          .gradient_scale = 0.5F,
          .update = update};
}

/// Algorithm 2 of Loshchilov and Hutter 2019 for one weight, in double.
struct ScalarAdamw {
  double w;
  double m = 0;
  double v = 0;

  void step(double g, const AdamwScalars& s) {
    const double beta1 = s.beta1;
    const double beta2 = s.beta2;
    g *= s.gradient_scale;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double t = static_cast<double>(s.update);
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    w -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.epsilon) + 0.1F * w);
  }
};

// Ten updates of at most 0.02 each on weights of size one: every one rounds the weight once or
// twice (2^-24) and carries some ten roundings of its own size (0.02 * 2^-24 * 10).
TEST(Adamw, AgreesWithAScalarReferenceInDouble) {
  constexpr std::int64_t kCount = 1000;
  Weights weights(kCount);
  std::vector<ScalarAdamw> reference;
  for (const float w : weights.master) reference.push_back({w});
  Team team(2);
  for (std::int64_t update = 1; update <= 10; ++update) {
    const auto gradient = random_numbers(kCount, static_cast<unsigned>(update) + 10, 0.1F);
    weights.step_adamw(team, gradient, scalars_of(update), 0, kCount);
    for (std::int64_t i = 0; i < kCount; ++i) reference[i].step(gradient[i], scalars_of(update));
  }
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(weights.master[i], reference[i].w,
                10 * 0x1p-24 * (2 * std::fabs(reference[i].w) + 0.5));
    ASSERT_EQ(weights.rounded[i], to_bfloat16(weights.master[i]));
  }
}

TEST(Adamw, GivesTheSameBitsForEverySliceAndAnyThreads) {
  constexpr std::int64_t kCount = 37 * 1024 + 500;
  Weights whole(kCount);
  Weights sliced(kCount);
  Team one(1);
  Team three(3);
  for (std::int64_t update = 1; update <= 3; ++update) {
    const auto gradient = random_numbers(kCount, static_cast<unsigned>(update), 0.1F);
    whole.step_adamw(one, gradient, scalars_of(update), 0, kCount);
    for (std::int64_t begin = 0; begin < kCount; begin += update * 5 * 1024) {
      sliced.step_adamw(three, gradient, scalars_of(update), begin,
                        std::min(kCount, begin + update * 5 * 1024));
    }
  }
  EXPECT_EQ(whole.master, sliced.master);
  EXPECT_EQ(whole.momentum, sliced.momentum);
  EXPECT_EQ(whole.variance, sliced.variance);
  EXPECT_EQ(whole.rounded, sliced.rounded);
}

// Widening is exact, so nothing else may differ; the size has whole tiles, parts and a rest.
TEST(Optimizers, TakeBfloat16GradientsAsTheirFloat32Values) {
  constexpr std::int64_t kCount = 2 * 16384 + 3 * 1024 + 5;
  Team team(2);
  Weights numbers(kCount);
  Weights halves(kCount);
  for (std::int64_t update = 1; update <= 2; ++update) {
    const auto gradient = rounded(random_numbers(kCount, static_cast<unsigned>(update), 0.1F));
    numbers.step_adamw(team, widened(gradient), scalars_of(update), 3, kCount);
    halves.step_adamw(team, gradient, scalars_of(update), 3, kCount);
  }
  const auto gradient = rounded(random_numbers(kCount, 7, 0.1F));
  const auto values = widened(gradient);
  const auto step_sgd = [&team](Weights& weights, const Gradients& gradients) {
    sgd(team,
        {.count = kCount,
         .gradient = gradients,
         .master = weights.master.data(),
         .momentum = weights.momentum.data()},
        0.05F, 0.9F, 1, 2);
  };
  step_sgd(numbers, values.data());
  step_sgd(halves, gradient.data());
  EXPECT_EQ(numbers.master, halves.master);
  EXPECT_EQ(numbers.momentum, halves.momentum);
  EXPECT_EQ(numbers.variance, halves.variance);
  ExactSum of_numbers;
  ExactSum of_halves;
  add_squares(team, values.data(), kCount, of_numbers);
  add_squares(team, gradient.data(), kCount, of_halves);
  EXPECT_EQ(of_numbers.value(), of_halves.value());
  EXPECT_GT(of_halves.value(), 0);
}

TEST(Sgd, AgreesWithAScalarReferenceInDouble) {
  constexpr std::int64_t kCount = 1003;
  constexpr float kRate = 0.05F;
  constexpr float kScale = 0.5F;
  constexpr float kDecay = 0.1F;
  Team team(2);
  for (const float momentum : {0.0F, 0.9F}) {
    Weights weights(kCount);
    std::vector<double> w(weights.master.begin(), weights.master.end());
    std::vector<double> m(w.size(), 0.0);
    for (std::int64_t update = 1; update <= 5; ++update) {
      const auto gradient = random_numbers(kCount, static_cast<unsigned>(update), 1);
      sgd(team,
          {.count = kCount,
           .gradient = gradient.data(),
           .master = weights.master.data(),
           .momentum = momentum == 0 ? nullptr : weights.momentum.data(),
           .rounded = weights.rounded.data(),
           .weight_decay = kDecay},
          kRate, momentum, kScale, update);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g =
            static_cast<double>(gradient[i]) * kScale + static_cast<double>(kDecay) * w[i];
        m[i] = update == 1 ? g : static_cast<double>(momentum) * m[i] + g;
        w[i] -= static_cast<double>(kRate) * m[i];
      }
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      // As above: five updates, a few roundings each, on numbers of the size of one.
      ASSERT_NEAR(static_cast<double>(weights.master[i]), w[i],
                  5 * 4 * 0x1p-24 * (1 + std::fabs(w[i])));
    }
  }
}

}  // namespace
}  // namespace sw::kernels
