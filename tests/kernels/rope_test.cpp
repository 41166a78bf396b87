#include "kernels/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace sw::kernels::testing {
namespace {

constexpr double kPi = std::numbers::pi;

TEST(RopeFrequencies, FallGeometricallyFromOne) {
  const auto f = rope_frequencies({.theta = 10000}, 8);
  ASSERT_EQ(f.size(), 4U);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_DOUBLE_EQ(f[1], 0.1);
  EXPECT_DOUBLE_EQ(f[2], 0.01);
  EXPECT_DOUBLE_EQ(f[3], 0.001);
}

TEST(RopeFrequencies, ScaleLinearly) {
  const auto f = rope_frequencies({.theta = 10000, .scaling = "linear", .factor = 4}, 8);
  EXPECT_DOUBLE_EQ(f[0], 0.25);
  EXPECT_DOUBLE_EQ(f[2], 0.0025);
}

// Llama 3 keeps wavelengths below original / high, divides those above original / low by the
// factor, and blends in between by how many wavelengths fit in the original length.
TEST(RopeFrequencies, ScaleAsLlama3) {
  const RopeParameters p{.theta = 10000,
                         .scaling = "llama3",
                         .factor = 8,
                         .low_frequency_factor = 1,
                         .high_frequency_factor = 4,
                         .original_length = 2 * kPi * 200};
  // The wavelengths of pairs are 2 pi times 1, 10, 100, 1000; the bounds 2 pi times 50 and 200.
  const auto f = rope_frequencies(p, 8);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_DOUBLE_EQ(f[1], 0.1);
  const double blend = (200.0 / 100 - 1) / (4 - 1);
  EXPECT_NEAR(f[2], (1 - blend) * 0.01 / 8 + blend * 0.01, 1e-15);
  EXPECT_DOUBLE_EQ(f[3], 0.001 / 8);
}

TEST(RopeFrequencies, RefuseAnUnknownRuleAndAnOddHead) {
  EXPECT_THROW((void)rope_frequencies({.scaling = "magic"}, 8), InternalError);
  EXPECT_THROW((void)rope_frequencies({}, 7), InternalError);
}

}  // namespace
}  // namespace sw::kernels::testing
