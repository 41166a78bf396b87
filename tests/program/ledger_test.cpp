#include "program/ledger.hpp"

#include <gmock/gmock.h>

#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"

namespace sw {
namespace {

using test::Builder;
using test::Exchange;

TEST(PlannedLedger, HoldsTheClosedFormsForTwoRanks) {
  const Ledger ledger = planned_ledger(test::make_exchange(0, 2).program, Algorithm::Direct);
  // Direct, 2 ranks: W - w + w = W sent by the all-reduce, half of W by the two others.
  EXPECT_EQ(ledger.at({CollectiveKind::AllReduce, "dp"}),
            (LedgerEntry{1, 4 * Exchange::kFlat, 0, 0}));
  EXPECT_EQ(ledger.at({CollectiveKind::ReduceScatter, "tp"}), (LedgerEntry{1, 4 * 60 / 2, 0, 0}));
  EXPECT_EQ(ledger.at({CollectiveKind::AllGather, "tp"}), (LedgerEntry{1, 4 * 60 / 2, 0, 0}));
  EXPECT_EQ(ledger.at({CollectiveKind::Broadcast, "dp"}), (LedgerEntry{1, 0, 0, 0}))
      << "rank 1 is the root";
  EXPECT_EQ(ledger.at({CollectiveKind::Send, "pp"}), (LedgerEntry{1, 4 * 7, 0, 0}));
  EXPECT_EQ(ledger.size(), 5U);
}

TEST(Merge, TakesTheLargestOverRanksAndTheSumAndLeavesReceivesOut) {
  const std::pair reduce{CollectiveKind::AllReduce, std::string("dp")};
  const std::pair receive{CollectiveKind::Receive, std::string("pp")};
  const std::vector<LedgerRow> rows = merge(
      {{{reduce, {2, 10, 1.5, 0.5}}}, {{reduce, {3, 7, 1.0, 0.75}}, {receive, {1, 0, 1, 1}}}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kind, Traffic(CollectiveKind::AllReduce));
  EXPECT_EQ(rows[0].axis, "dp");
  EXPECT_EQ(rows[0].calls, 3);
  EXPECT_EQ(rows[0].sent_bytes_per_rank, 10);
  EXPECT_EQ(rows[0].sent_bytes, 17);
  EXPECT_EQ(rows[0].seconds, 1.5);
  EXPECT_EQ(rows[0].wait_seconds, 0.75);
}

TEST(PlannedLedger, CountsTheBytesOfCopiesEachWay) {
  Builder b;
  const Operand x = b.state("x", {5});
  const Operand kept = b.state("kept", {5}, Lane::Host);
  b.add("out", CopyWork{}, {x}, {kept});
  b.add("in", CopyWork{}, {kept}, {x});
  b.add("in", CopyWork{}, {test::part(kept, 1, 2)}, {test::part(x, 3, 2)});
  const Program program = b.finish();
  EXPECT_NO_THROW(verify(program));
  const Ledger ledger = planned_ledger(program, Algorithm::Direct);
  EXPECT_EQ(ledger.size(), 2U);
  EXPECT_EQ(ledger.at({CopyDirection::ToHost, "host"}), (LedgerEntry{1, 20, 0, 0}));
  EXPECT_EQ(ledger.at({CopyDirection::ToDevice, "host"}), (LedgerEntry{2, 28, 0, 0}));
  EXPECT_EQ(exposed_communication(program, {{0, 0, 1}, {1, 1, 3}}), 3);
}

TEST(Traffic, IsReadFromTheWordsItIsWrittenWith) {
  for (const Traffic traffic : {Traffic(CollectiveKind::AllGather), Traffic(CopyDirection::ToHost),
                                Traffic(CopyDirection::ToDevice)}) {
    EXPECT_EQ(traffic_from_text(to_text(traffic)), traffic);
  }
}

TEST(ExposedCommunication, IsWhereNothingComputes) {
  Builder b(0, 2, {"compute", "communication"});
  const Operand x = b.state("x", {4}, Lane::Window);
  const GroupId dp = b.group("dp", 1, {0, 1});
  b.zero(x);
  b.collective(CollectiveKind::AllReduce, dp, x, x);
  b.collective(CollectiveKind::AllReduce, dp, x, x);
  b.zero(x);
  const Program& program = b.program();
  // Computes in [0, 4) and [7, 8); communicates in [1, 3), all hidden, and in [3, 7.5).
  const Timeline timeline = {{0, 0, 4}, {1, 1, 3}, {2, 3, 7.5}, {3, 7, 8}};
  EXPECT_EQ(exposed_communication(program, timeline), 3);
  EXPECT_EQ(exposed_communication(program, {{0, 0, 4}, {1, 4, 6}}), 2);
  EXPECT_EQ(exposed_communication(program, {}), 0);
}

}  // namespace
}  // namespace sw
