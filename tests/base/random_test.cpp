#include "base/random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

using ::testing::ElementsAre;

// The known answers that come with the paper's library (Random123, kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_THAT(philox(0, 0, 0), ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  EXPECT_THAT(philox(~0ULL, ~0ULL, ~0ULL),
              ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
  EXPECT_THAT(philox(0x299f31d0a4093822U, 0x0370734413198a2eU, 0x85a308d3243f6a88U),
              ElementsAre(0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U));
}

TEST(Normal, HasTheMomentsOfAStandardNormal) {
  constexpr int kCount = 200000;
  double moment[5] = {};
  double neighbours = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = normal(7, 3, i);
    for (int power = 1; power <= 4; ++power) moment[power] += std::pow(x, power) / kCount;
    neighbours += x * normal(7, 3, i + 1) / kCount;
  }
  // Five standard errors: the variances of x, x^2, x^3, x^4 are 1, 2, 15 and 96.
  const double error = 5 / std::sqrt(kCount);
  EXPECT_NEAR(moment[1], 0, error);
  EXPECT_NEAR(moment[2], 1, error * std::sqrt(2));
  EXPECT_NEAR(moment[3], 0, error * std::sqrt(15));
  EXPECT_NEAR(moment[4], 3, error * std::sqrt(96));
  EXPECT_NEAR(neighbours, 0, error);
}

TEST(Normal, APairOfNormalNumbersIsThoseOfItsIndices) {
  for (std::uint64_t pair = 0; pair < 1000; ++pair) {
    const auto [even, odd] = normal_pair(7, 3, pair);
    ASSERT_EQ(even, normal(7, 3, 2 * pair));
    ASSERT_EQ(odd, normal(7, 3, 2 * pair + 1));
  }
}

TEST(Normal, IsAnotherSequenceForAnotherSeedOrStream) {
  EXPECT_NE(normal(1, 0, 0), normal(2, 0, 0));
  EXPECT_NE(normal(1, 0, 0), normal(1, 1, 0));
  EXPECT_EQ(normal(1, 2, 3), normal(1, 2, 3));
}

TEST(Permutation, MeetsEveryIndexOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 64, 65, 1000, 4097}) {
    const Permutation permutation(size, 42, 0);
    std::vector<int> seen(static_cast<std::size_t>(size), 0);
    for (std::int64_t i = 0; i < size; ++i) ++seen.at(static_cast<std::size_t>(permutation(i)));
    EXPECT_THAT(seen, ::testing::Each(1)) << "size " << size;
  }
}

TEST(Permutation, ChangesWithSeedAndEpoch) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    const Permutation permutation(100, seed, epoch);
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < 100; ++i) result.push_back(permutation(i));
    return result;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 2), order(2, 1));
}

// Each of the 24 orders of four elements is equally likely over the seeds: chi-square with 23
// degrees of freedom exceeds 60 with probability 4e-5.
TEST(Permutation, DrawsEveryOrderEquallyOften) {
  constexpr int kDraws = 24000;
  std::vector<int> count(256, 0);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Permutation permutation(4, seed, 0);
    std::int64_t code = 0;
    for (std::int64_t i = 0; i < 4; ++i) code = code * 4 + permutation(i);
    ++count.at(static_cast<std::size_t>(code));
  }
  double chi_square = 0;
  int orders = 0;
  for (const int n : count) {
    if (n == 0) continue;
    ++orders;
    chi_square += (n - kDraws / 24.0) * (n - kDraws / 24.0) / (kDraws / 24.0);
  }
  EXPECT_EQ(orders, 24);
  EXPECT_LT(chi_square, 60);
}

TEST(Permutation, RefusesAPositionOutside) {
  const Permutation permutation(10, 1, 1);
  EXPECT_THROW((void)permutation(10), InternalError);
  EXPECT_THROW((void)permutation(-1), InternalError);
}

}  // namespace
}  // namespace sw
