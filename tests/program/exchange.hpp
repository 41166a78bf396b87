#pragma once

#include <vector>

#include "base/shape.hpp"
#include "tests/program/builder.hpp"

namespace sw::test {

/// A Program with every kind of collective on two streams, beside which compute goes on. The ranks
/// may be any number from two on; sizes do not divide.
struct Exchange {
  static constexpr std::int64_t kFlat = 1001;
  static constexpr std::int64_t kOuter = 3, kCut = 10, kInner = 2;

  Program program;
  Operand ones;       ///< [kFlat], persistent, private: what the host wrote
  Operand sum;        ///< [kFlat], persistent: 2 x ones, summed over ranks, plus ones
  Operand scattered;  ///< persistent part of [3, 10, 2]
  Operand gathered;   ///< [3, 10, 2], persistent: the parts put together again
  Operand passed;     ///< [7], persistent: on rank 1 what rank 0 has there
  Operand shared;     ///< [5], persistent: everywhere what the last rank has there
  std::int64_t part = 0;
};

inline Exchange make_exchange(int rank, int ranks) {
  Builder b(rank, ranks, {"compute", "communication"});
  Exchange e;
  const Shape whole = {Exchange::kOuter, Exchange::kCut, Exchange::kInner};
  e.part = split(Exchange::kCut, ranks, rank).size();
  e.ones = b.state("ones", {Exchange::kFlat});
  e.sum = b.state("sum", {Exchange::kFlat});
  e.scattered = b.state("scattered", {Exchange::kOuter, e.part, Exchange::kInner}, Lane::Window);
  e.gathered = b.state("gathered", whole, Lane::Window);
  e.passed = b.state("passed", {7}, Lane::Window);
  e.shared = b.state("shared", {5}, Lane::Window);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  const GroupId dp = b.group("dp", 1, all);
  const GroupId tp = b.group("tp", 0, all);
  const Operand twice = b.tensor("twice", {Exchange::kFlat}, Lane::Window);
  b.kernel("add", {e.ones, e.ones}, twice);
  b.collective(CollectiveKind::AllReduce, dp, twice, twice);
  b.collective(CollectiveKind::ReduceScatter, tp, e.gathered, e.scattered, 1);
  b.kernel("add", {twice, e.ones}, e.sum);
  b.collective(CollectiveKind::AllGather, tp, e.scattered, e.gathered, 1);
  b.collective(CollectiveKind::Broadcast, dp, e.shared, e.shared, -1, ranks - 1);
  if (rank < 2) {
    const GroupId pp = b.group("pp", 1, {0, 1});
    if (rank == 0) {
      b.send(pp, 1, e.passed);
    } else {
      b.receive(pp, 0, e.passed);
    }
  }
  e.program = b.finish();
  return e;
}

inline std::vector<Program> exchange_programs(int ranks) {
  std::vector<Program> programs;
  for (int r = 0; r < ranks; ++r) programs.push_back(make_exchange(r, ranks).program);
  return programs;
}

}  // namespace sw::test
