#include "comm/traffic.hpp"

#include <gtest/gtest.h>

#include "comm/algorithms.hpp"

namespace sw {
namespace {

CollectiveSizes sizes(CollectiveKind kind, Algorithm algorithm, std::vector<Extent> segments,
                      DType dtype = DType::UInt8) {
  return {.kind = kind, .algorithm = algorithm, .dtype = dtype, .segments = std::move(segments)};
}

std::int64_t sum_over_ranks(const CollectiveSizes& it, int ranks) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += sent_bytes(it, ranks, rank);
  return sum;
}

constexpr std::array kBoth = {Algorithm::Direct, Algorithm::Ring};

// seed_accounts: s1.ring.bytes_120MB_4, s1.ring.one_rank
TEST(Traffic, AnAllReduceSendsTwoNMinusOneOverNOfTheBuffer) {
  for (const Algorithm algorithm : kBoth) {
    const auto all =
        sizes(CollectiveKind::AllReduce, algorithm, {{1, 30'000'000, 1}}, DType::Float32);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(sent_bytes(all, 4, rank), 180'000'000);
    EXPECT_EQ(sent_bytes(all, 1, 0), 0);
  }
}

// seed_accounts: s1.ring.indivisible
TEST(Traffic, ARingOfFourSendsSixtyBytesForTen) {
  const auto all = sizes(CollectiveKind::AllReduce, Algorithm::Ring, {{1, 10, 1}});
  EXPECT_EQ(sum_over_ranks(all, 4), 60);
  // Parts of 3, 3, 2, 2; rank r does not forward part r + 1 in the first half, r + 2 in the second.
  EXPECT_EQ(sent_bytes(all, 4, 0), 20 - 3 - 2);
  EXPECT_EQ(sent_bytes(all, 4, 1), 20 - 2 - 2);
  EXPECT_EQ(sent_bytes(all, 4, 2), 20 - 2 - 3);
  EXPECT_EQ(sent_bytes(all, 4, 3), 20 - 3 - 3);
}

TEST(Traffic, OverAllRanksUnevenPartsSendTheClosedForms) {
  const std::vector<Extent> segments = {{3, 11, 2}, {1, 4, 1}, {2, 0, 3}};
  const std::int64_t whole = (66 + 4) * 4;
  for (const Algorithm algorithm : kBoth) {
    for (const int n : {1, 2, 3, 4, 7}) {
      const auto of = [&](CollectiveKind kind) {
        return sum_over_ranks(sizes(kind, algorithm, segments, DType::Float32), n);
      };
      EXPECT_EQ(of(CollectiveKind::AllReduce), 2 * (n - 1) * whole);
      EXPECT_EQ(of(CollectiveKind::ReduceScatter), (n - 1) * whole);
      EXPECT_EQ(of(CollectiveKind::AllGather), (n - 1) * whole);
    }
  }
}

TEST(Traffic, TheOtherKindsSendWhatTheyAreAsked) {
  auto broadcast = sizes(CollectiveKind::Broadcast, Algorithm::Direct, {{1, 100, 1}});
  broadcast.peer = 2;
  EXPECT_EQ(sent_bytes(broadcast, 5, 2), 400);
  EXPECT_EQ(sent_bytes(broadcast, 5, 1), 0);
  EXPECT_EQ(sent_bytes(sizes(CollectiveKind::Send, Algorithm::Direct, {{2, 50, 3}}), 5, 1), 300);
  EXPECT_EQ(sent_bytes(sizes(CollectiveKind::Receive, Algorithm::Direct, {{1, 9, 1}}), 5, 1), 0);
  EXPECT_EQ(sent_bytes(sizes(CollectiveKind::Barrier, Algorithm::Direct, {}), 5, 1), 0);
  auto exchange = sizes(CollectiveKind::AllToAll, Algorithm::Direct, {{}}, DType::Float32);
  exchange.input_counts = {5, 7, 11};
  EXPECT_EQ(sent_bytes(exchange, 3, 1), 4 * (5 + 11));
}

TEST(Traffic, RoundsAreThoseOfTheFormulas) {
  for (const int n : {1, 2, 3, 8}) {
    const int some = n > 1 ? 1 : 0;
    EXPECT_EQ(rounds(CollectiveKind::AllReduce, Algorithm::Ring, n), 2 * (n - 1));
    EXPECT_EQ(rounds(CollectiveKind::ReduceScatter, Algorithm::Ring, n), n - 1);
    EXPECT_EQ(rounds(CollectiveKind::AllGather, Algorithm::Ring, n), n - 1);
    EXPECT_EQ(rounds(CollectiveKind::AllReduce, Algorithm::Direct, n), 2 * some);
    EXPECT_EQ(rounds(CollectiveKind::AllGather, Algorithm::Direct, n), some);
    EXPECT_EQ(rounds(CollectiveKind::Barrier, Algorithm::Direct, n), 0);
  }
}

/// What the plans of all ranks take from `rank`.
std::int64_t planned_from(const CollectiveSizes& it, int ranks, int rank) {
  std::int64_t elements = 0;
  for (int other = 0; other < ranks; ++other) {
    for (const Round& round : plan_rounds(it, ranks, other)) {
      for (const Pull& pull : round) {
        for (const Source& operand : pull.operands) {
          if (operand.member == rank && other != rank) elements += pull.rows * pull.columns;
        }
      }
    }
  }
  return elements * size_of(it.dtype);
}

TEST(Algorithms, PlansTakeFromEachRankWhatTheFormulaSaysInAsManyRounds) {
  const std::vector<Extent> segments = {{3, 11, 2}, {1, 4, 1}, {2, 0, 3}, {1, 28, 1}};
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter,
                                    CollectiveKind::AllGather, CollectiveKind::Broadcast}) {
    for (const Algorithm algorithm : kBoth) {
      for (const int n : {2, 3, 4, 7}) {
        CollectiveSizes it = sizes(kind, algorithm_for(kind, algorithm), segments, DType::Float64);
        it.peer = 1;
        for (int rank = 0; rank < n; ++rank) {
          EXPECT_EQ(planned_from(it, n, rank), sent_bytes(it, n, rank))
              << to_text(kind) << " rank " << rank << " of " << n;
          EXPECT_EQ(plan_rounds(it, n, rank).size(),
                    static_cast<std::size_t>(rounds(kind, it.algorithm, n)));
        }
      }
    }
  }
}

TEST(Algorithms, ARingTakesOnlyFromTheLeft) {
  for (const CollectiveKind kind :
       {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather}) {
    for (const Round& round : plan_rounds(sizes(kind, Algorithm::Ring, {{1, 10, 1}}), 5, 3)) {
      for (const Pull& pull : round) {
        for (const Source& operand : pull.operands) {
          EXPECT_TRUE(operand.member == 2 || operand.member == 3) << to_text(kind);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sw
