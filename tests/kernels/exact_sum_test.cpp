#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel.hpp"

namespace sw::kernels {
namespace {

bool same_words(const ExactSum& a, const ExactSum& b) {
  return std::memcmp(a.words, b.words, sizeof a.words) == 0;
}

/// Numbers over the range of squares of float32 numbers, of both signs.
std::vector<double> wide_numbers(int count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> exponent(-290, 250);
  std::uniform_real_distribution<double> mantissa(-2, 2);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::ldexp(mantissa(random), exponent(random)));
  return values;
}

TEST(ExactSum, IsTheSameWordsInEveryOrderAndSplit) {
  std::vector<double> values = wide_numbers(2000, 1);
  ExactSum forward;
  for (const double value : values) forward.add(value);
  std::mt19937 random(2);
  std::ranges::shuffle(values, random);
  ExactSum parts[7];
  for (std::size_t i = 0; i < values.size(); ++i) parts[i % 7].add(values[i]);
  ExactSum together;
  for (const ExactSum& part : parts) together.add(part);
  EXPECT_TRUE(same_words(forward, together));
}

// Integers below 2^62 are summed exactly by 64-bit arithmetic.
TEST(ExactSum, EqualsTheSumOfIntegers) {
  std::mt19937_64 random(3);
  std::uniform_int_distribution<std::int64_t> number(-(std::int64_t{1} << 52U),
                                                     std::int64_t{1} << 52U);
  for (const int scale : {-200, -31, 0, 33, 200}) {
    ExactSum sum;
    std::int64_t expected = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t value = number(random);
      expected += value;
      sum.add(std::ldexp(static_cast<double>(value), scale));
      ASSERT_EQ(sum.value(), std::ldexp(static_cast<double>(expected), scale));
    }
  }
}

TEST(ExactSum, LosesNothingToLargeNumbersThatCancel) {
  ExactSum sum;
  sum.add(0x1p250);
  sum.add(0x1.23456789abcdep-280);
  sum.add(-0x1p250);
  EXPECT_EQ(sum.value(), 0x1.23456789abcdep-280);
  sum.add(-0x1p-100);
  EXPECT_EQ(sum.value(), -0x1p-100);  // rounded to nearest: the rest is 180 bits below
}

TEST(ExactSum, RoundsToNearestWithTiesToEven) {
  ExactSum tie;
  tie.add(1);
  tie.add(0x1p-53);
  EXPECT_EQ(tie.value(), 1);
  tie.add(0x1p-200);
  EXPECT_EQ(tie.value(), 1 + 0x1p-52);
  ExactSum odd;
  odd.add(1 + 0x1p-52);
  odd.add(0x1p-53);
  EXPECT_EQ(odd.value(), 1 + 0x1p-51);
}

TEST(ExactSum, OfNothingIsZero) {
  EXPECT_EQ(ExactSum{}.value(), 0);
  ExactSum sum;
  sum.add(5);
  sum.add(-5);
  EXPECT_EQ(sum.value(), 0);
}

TEST(ExactSum, FlagsWhatIsNotFiniteAlsoAfterMerging) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    ExactSum sum;
    sum.add(bad);
    ExactSum other;
    other.add(1);
    other.add(sum);
    EXPECT_TRUE(std::isnan(other.value()));
  }
}

// The squares of small whole numbers add up exactly in any type.
TEST(AddSquares, EqualsTheIntegerSum) {
  for (const std::int64_t count : {0, 1, 15, 1024, 1025, 200000}) {
    std::vector<float> data;
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      data.push_back(static_cast<float>(i % 201 - 100));
      expected += (i % 201 - 100) * (i % 201 - 100);
    }
    Team team(2);
    ExactSum sum;
    add_squares(team, data.data(), count, sum);
    EXPECT_EQ(sum.value(), static_cast<double>(expected)) << count;
  }
}

TEST(AddSquares, GivesTheSameWordsForEverySliceAtBlocksAndOnAnyThreads) {
  constexpr std::int64_t kCount = 100 * 1024 + 77;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> data(kCount);
  for (float& value : data) value = normal(random);
  Team one(1);
  ExactSum whole;
  add_squares(one, data.data(), kCount, whole);
  for (const std::int64_t parts : {2, 3, 7}) {
    Team team(static_cast<int>(parts) % 3 + 1);
    ExactSum sum;
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range blocks = split(101, parts, part);
      const std::int64_t end = std::min(kCount, blocks.end * 1024);
      add_squares(team, data.data() + blocks.begin * 1024, end - blocks.begin * 1024, sum);
    }
    EXPECT_TRUE(same_words(whole, sum)) << parts;
  }
}

TEST(AddSquares, FlagsAGradientThatIsNotFinite) {
  std::vector<float> data(3000, 1.0F);
  data[2999] = std::numeric_limits<float>::infinity();
  Team team(2);
  ExactSum sum;
  add_squares(team, data.data(), 3000, sum);
  EXPECT_TRUE(std::isnan(sum.value()));
  // The largest float32 number is still one: its square is below 2^256.
  std::vector<float> large(3000, std::numeric_limits<float>::max());
  ExactSum finite;
  add_squares(team, large.data(), 3000, finite);
  const double square = std::pow(static_cast<double>(std::numeric_limits<float>::max()), 2);
  EXPECT_NEAR(finite.value() / (3000 * square), 1, 1e-12);  // rounding of block sums in float64
}

}  // namespace
}  // namespace sw::kernels
