#include "simulate/simulate.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"

namespace sw {
namespace {

using test::Builder;

/// Whole numbers, so that times add up without rounding.
Machine slow_machine() {
  Machine machine;
  machine.flops_per_s = 10;
  machine.memory_bytes_per_s = 4;
  machine.link_bytes_per_s = 8;
  machine.link_latency_s = 2;
  machine.instruction_s = 1;
  return machine;
}

TEST(Simulate, AKernelTakesTheLongerOfArithmeticAndMemory) {
  Builder b;
  const Operand x = b.state("x", {4});
  b.kernel("add", {x, x}, b.tensor("y", {4}));  // 48 bytes touched
  b.kernel("add", {x, x}, b.tensor("z", {4}));
  b.program().instructions[1].flops = 200;
  const Simulation simulation = simulate({b.finish()}, Algorithm::Direct, slow_machine());
  EXPECT_EQ(simulation.timelines[0][0].end, 1 + 48 / 4);
  EXPECT_EQ(simulation.timelines[0][1].start, 13);
  EXPECT_EQ(simulation.timelines[0][1].end, 13 + 1 + 200 / 10);
  EXPECT_EQ(simulation.step_seconds, 34);
  EXPECT_TRUE(simulation.ledgers[0].empty());
}

TEST(Simulate, ASliceReadsNoMoreThanItWrites) {
  Builder b;
  b.add("slice", SliceWork{0, 0}, {b.state("x", {1000})}, {b.state("y", {2})});
  EXPECT_EQ(simulate({b.finish()}, Algorithm::Direct, slow_machine()).step_seconds, 1 + 16 / 4);
}

TEST(Simulate, StreamsOverlapUnlessEdgesOrderThem) {
  const auto two = [](bool ordered) {
    Builder b(0, 1, {"compute", "other"});
    const Operand x = b.state("x", {4});
    const Operand y = b.state("y", {8});
    b.zero(x, 0);  // 1 + 16 / 4 = 5
    b.zero(y, 1);  // 1 + 32 / 4 = 9
    if (ordered) b.program().instructions[1].after = {0};
    return b.finish();
  };
  EXPECT_EQ(simulate({two(false)}, Algorithm::Direct, slow_machine()).step_seconds, 9);
  EXPECT_EQ(simulate({two(true)}, Algorithm::Direct, slow_machine()).step_seconds, 14);
}

/// Rank r zeroes r times, then both all-reduce 16 bytes.
Program late(int rank) {
  Builder b(rank, 2);
  const Operand x = b.state("x", {4}, Lane::Window);
  const GroupId dp = b.group("dp", 0, {0, 1});
  for (int i = 0; i < rank; ++i) b.zero(x);
  b.collective(CollectiveKind::AllReduce, dp, x, x);
  return b.finish();
}

TEST(Simulate, ACollectiveStartsWhenAllHaveArrivedAndEndsForAllAtOnce) {
  const Simulation simulation = simulate({late(0), late(1)}, Algorithm::Direct, slow_machine());
  // Rank 1 arrives at 5. Then: overhead 1, two rounds of latency 2, 16 bytes sent at 8 a second.
  const double seconds = 1 + 2 * 2 + 16.0 / 8;
  EXPECT_EQ(simulation.timelines[0][0].start, 0);
  EXPECT_EQ(simulation.timelines[0][0].end, 5 + seconds);
  EXPECT_EQ(simulation.timelines[1][1].start, 5);
  EXPECT_EQ(simulation.timelines[1][1].end, 5 + seconds);
  const std::pair key{CollectiveKind::AllReduce, std::string("dp")};
  EXPECT_EQ(simulation.ledgers[0].at(key), (LedgerEntry{1, 16, 5 + seconds, 5}));
  EXPECT_EQ(simulation.ledgers[1].at(key), (LedgerEntry{1, 16, seconds, 0}));
}

TEST(Simulate, LedgersAreThePlannedOnes) {
  for (const int ranks : {2, 3, 5}) {
    for (const Algorithm algorithm : {Algorithm::Direct, Algorithm::Ring}) {
      const std::vector<Program> programs = test::exchange_programs(ranks);
      const Simulation simulation = simulate(programs, algorithm, Machine{});
      for (std::size_t r = 0; r < programs.size(); ++r) {
        Ledger ledger = simulation.ledgers[r];
        for (auto& [key, entry] : ledger) entry.seconds = entry.wait_seconds = 0;
        EXPECT_EQ(ledger, planned_ledger(programs[r], algorithm));
      }
    }
  }
}

TEST(Simulate, RefusesProgramsThatDeadlock) {
  const auto crossed = [](int rank) {
    Builder b(rank, 2);
    const Operand x = b.state("x", {4}, Lane::Window);
    const GroupId groups[] = {b.group("dp", 0, {0, 1}), b.group("tp", 0, {0, 1})};
    for (const int i : {0, 1}) {
      b.collective(CollectiveKind::AllReduce, groups[i == rank ? 0 : 1], x, x);
    }
    return b.finish();
  };
  EXPECT_THROW((void)simulate({crossed(0), crossed(1)}, Algorithm::Direct, Machine{}),
               InternalError);
}

TEST(Simulate, ACopyTakesItsBytesOverTheLinkOrOverMemoryWhereNoLinkIsGiven) {
  test::Builder b;
  const Operand x = b.state("x", {1000});
  const Operand kept = b.state("kept", {1000}, Lane::Host);
  b.add("out", CopyWork{}, {x}, {kept});
  const std::vector<Program> programs{b.finish()};
  Machine machine;
  machine.instruction_s = 0;
  machine.memory_bytes_per_s = 2000;
  EXPECT_EQ(simulate(programs, Algorithm::Direct, machine).step_seconds, 2);
  machine.host_link_bytes_per_s = 500;
  const Simulation simulation = simulate(programs, Algorithm::Direct, machine);
  EXPECT_EQ(simulation.step_seconds, 8);
  EXPECT_EQ(simulation.ledgers[0].at({CopyDirection::ToHost, "host"}),
            (LedgerEntry{1, 4000, 8, 0}));
}

}  // namespace
}  // namespace sw
