#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "comm/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/traffic.hpp"
#include "tests/comm/ranks.hpp"

/// Collectives beyond the size up to which caches are counted on: cut into pieces, stored past the
/// caches.
namespace sw {
namespace {

using test::bytes_of;

/// Not a multiple of anything; times four bytes and two ranks more than 16 MiB.
constexpr std::int64_t kLength = (5 << 20) + 7;

float value(int rank, std::int64_t i) {
  const std::uint64_t x =
      (static_cast<std::uint64_t>(i) * 8 + static_cast<std::uint64_t>(rank)) * 0x9E3779B97F4A7C15U;
  return (static_cast<float>(x >> 40U) - 8388608.0F) * 1e-3F;
}
float sum_in_rank_order(int ranks, std::int64_t i) {
  float sum = value(0, i);
  for (int rank = 1; rank < ranks; ++rank) sum += value(rank, i);
  return sum;
}
void fill(std::span<float> x, int rank, std::int64_t first = 0) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = value(rank, first + static_cast<std::int64_t>(i));
  }
}

class Large : public ::testing::TestWithParam<test::Backend> {
 protected:
  /// Runs a collective of one segment and holds its bytes to the formula.
  static void run(Communicator& group, CollectiveKind kind, const Segment& segment) {
    const Collective call{.kind = kind, .segments = {segment}, .name = "large"};
    EXPECT_EQ(group.run(call).sent_bytes, sent_bytes(sizes_of(call), group.size(), group.rank()));
  }
};

TEST_P(Large, SumsAreThoseInRankOrder) {
  test::expect_ranks({.backend = GetParam(), .ranks = 3}, [](World& world) {
    test::Window window(world, 8 * kLength + 4096);
    const auto group = world.make_communicator("all", test::first_ranks(3));
    const auto x = window.take<float>(kLength);
    const auto y = window.take<float>(kLength);
    for (const bool in_place : {true, false}) {
      fill(x, world.rank());
      const auto output = in_place ? x : y;
      run(*group, CollectiveKind::AllReduce, {bytes_of(x), bytes_of(output), 1, kLength, 1});
      for (std::int64_t i = 0; i < kLength; ++i) {
        ASSERT_EQ(output[static_cast<std::size_t>(i)], sum_in_rank_order(3, i)) << "element " << i;
      }
    }
  });
}

TEST_P(Large, SumsOfManyRowsAreThoseInRankOrder) {
  test::expect_ranks({.backend = GetParam(), .ranks = 2}, [](World& world) {
    constexpr std::int64_t kRows = 1021;
    constexpr std::int64_t kColumns = 5003;
    test::Window window(world, 4 * kRows * kColumns + 4096);
    const auto group = world.make_communicator("all", test::first_ranks(2));
    const auto x = window.take<float>(kRows * kColumns);
    fill(x, world.rank());
    run(*group, CollectiveKind::AllReduce, {bytes_of(x), bytes_of(x), kRows, kColumns, 1});
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
      ASSERT_EQ(x[static_cast<std::size_t>(i)], sum_in_rank_order(2, i)) << "element " << i;
    }
  });
}

TEST_P(Large, PartsOfASumAndPartsPutTogetherAreWhole) {
  test::expect_ranks({.backend = GetParam(), .ranks = 2}, [](World& world) {
    test::Window window(world, 8 * kLength + 4096);
    const auto group = world.make_communicator("all", test::first_ranks(2));
    const Range part = split(kLength, 2, world.rank());
    const auto whole = window.take<float>(kLength);
    // Begins within a cache line.
    const auto own = window.take<float>(part.size() + 3).subspan(3);
    fill(whole, world.rank());
    run(*group, CollectiveKind::ReduceScatter, {bytes_of(whole), bytes_of(own), 1, kLength, 1});
    for (std::size_t i = 0; i < own.size(); ++i) {
      const float sum = sum_in_rank_order(2, part.begin + static_cast<std::int64_t>(i));
      ASSERT_EQ(own[i], sum) << "element " << i;
    }
    run(*group, CollectiveKind::AllGather, {bytes_of(own), bytes_of(whole), 1, kLength, 1});
    for (std::int64_t i = 0; i < kLength; ++i) {
      ASSERT_EQ(whole[static_cast<std::size_t>(i)], sum_in_rank_order(2, i)) << "element " << i;
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<test::Backend>& info) {
  return std::string(test::to_text(info.param));
}
INSTANTIATE_TEST_SUITE_P(Backends, Large,
                         ::testing::Values(test::Backend::Local, test::Backend::Shm), name_of);

/// The round in which an element of the output is written.
std::map<std::int64_t, std::size_t> rounds_of_elements(const std::vector<Round>& rounds) {
  std::map<std::int64_t, std::size_t> written;
  for (std::size_t at = 0; at < rounds.size(); ++at) {
    for (const Pull& move : rounds[at]) {
      for (std::int64_t row = 0; row < move.rows; ++row) {
        for (std::int64_t column = 0; column < move.columns; ++column) {
          const std::int64_t element = move.target.offset + row * move.target.stride + column;
          EXPECT_TRUE(written.emplace(element, at).second) << "element " << element << " twice";
        }
      }
    }
  }
  return written;
}

TEST(Pieces, WhatARankTakesWasFinishedByItsOwnerARoundBefore) {
  for (const Extent& extent : {Extent{1, 100, 1}, Extent{7, 12, 3}, Extent{1, 2, 1}}) {
    const CollectiveSizes sum{
        .kind = CollectiveKind::AllReduce, .dtype = DType::Float32, .segments = {extent}};
    constexpr int kRanks = 3;
    std::vector<std::map<std::int64_t, std::size_t>> written;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto rounds = in_pieces(plan_rounds(sum, kRanks, rank), 5);
      EXPECT_EQ(rounds.size(), 6U);  // two rounds, five pieces
      written.push_back(rounds_of_elements(rounds));
      EXPECT_EQ(static_cast<std::int64_t>(written.back().size()),
                extent.outer * extent.length * extent.trailing);
    }
    for (const auto& [element, round] : written[0]) {
      std::vector<std::size_t> rounds;
      rounds.reserve(written.size());
      for (const auto& of_rank : written) rounds.push_back(of_rank.at(element));
      std::ranges::sort(rounds);
      // Its owner adds it in one round, the others copy it in the next.
      EXPECT_EQ(rounds, (std::vector<std::size_t>{rounds[0], rounds[0] + 1, rounds[0] + 1}));
    }
  }
}

}  // namespace
}  // namespace sw
