#include "kernels/dropout.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace sw::kernels::testing {
namespace {

Tensor ones(const Shape& shape) {
  Tensor tensor = zeros(shape);
  for (double& value : tensor.values) value = 1;
  return tensor;
}

std::vector<double> masked(const DropoutParameters& parameters, const Shape& shape,
                           std::int64_t seed, std::int64_t step) {
  OwnedCall call("dropout", parameters, {ones(shape), long_integers({2}, {seed, step})},
                 {zeros(shape)}, DType::Float32, DType::Float32);
  call.run_cpu(2);
  return call.output(0);
}

TEST(Dropout, OfAPartIsThePartOfTheWhole) {
  const Shape whole{4, 9, 30};
  const auto mask = masked({.rate = 0.5, .whole = whole, .start = {0, 0, 0}}, whole, 3, 4);
  const Shape part{2, 3, 7};
  const auto cut = masked({.rate = 0.5, .whole = whole, .start = {1, 4, 11}}, part, 3, 4);
  for (std::int64_t i = 0; i < 2 * 3 * 7; ++i) {
    const std::int64_t b = 1 + i / 21;
    const std::int64_t s = 4 + i / 7 % 3;
    const std::int64_t d = 11 + i % 7;
    EXPECT_EQ(cut[static_cast<std::size_t>(i)],
              mask[static_cast<std::size_t>((b * 9 + s) * 30 + d)]);
  }
}

TEST(Dropout, KeepsTheStatedShareAndTheMean) {
  constexpr double kRate = 0.2;
  constexpr std::int64_t kCount = 100000;
  const auto y = masked({.rate = kRate, .whole = {kCount}, .start = {0}}, {kCount}, 1, 1);
  double kept = 0;
  for (const double value : y) {
    if (value == 0) continue;
    EXPECT_NEAR(value, 1 / (1 - kRate), 1e-6);
    ++kept;
  }
  // Five standard deviations of a binomial share.
  EXPECT_NEAR(kept / kCount, 1 - kRate, 5 * std::sqrt(kRate * (1 - kRate) / kCount));
}

TEST(Dropout, ChangesWithSeedStepAndStream) {
  const Shape shape{200};
  const DropoutParameters p{.rate = 0.5, .stream = 1, .whole = shape, .start = {0}};
  DropoutParameters other = p;
  other.stream = 2;
  const auto base = masked(p, shape, 1, 1);
  EXPECT_EQ(base, masked(p, shape, 1, 1));
  EXPECT_NE(base, masked(p, shape, 2, 1));
  EXPECT_NE(base, masked(p, shape, 1, 2));
  EXPECT_NE(base, masked(other, shape, 1, 1));
}

TEST(Dropout, OfRateZeroIsTheIdentity) {
  const Shape shape{3, 50};
  const auto y = masked({.rate = 0, .whole = shape, .start = {0, 0}}, shape, 1, 1);
  EXPECT_EQ(y, std::vector<double>(150, 1.0));
}

}  // namespace
}  // namespace sw::kernels::testing
