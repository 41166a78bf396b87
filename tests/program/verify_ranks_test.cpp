#include <gmock/gmock.h>

#include "base/error.hpp"
#include "program/program.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"

namespace sw {
namespace {

using test::Builder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::vector<Program>& ranks) {
  try {
    verify(ranks);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "not refused";
}

/// `count` all_reduces over both ranks, each on a tensor of its own of `elements`, on the axes
/// named.
Program reduces(int rank, const std::vector<std::string>& axes, std::int64_t elements = 8) {
  Builder b(rank, 2);
  std::vector<GroupId> groups;
  for (const char* axis : {"dp", "tp"}) groups.push_back(b.group(axis, 0, {0, 1}));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Operand x = b.state("x", {elements}, Lane::Window);
    b.collective(CollectiveKind::AllReduce, groups[axes[i] == "dp" ? 0 : 1], x, x);
  }
  return b.finish();
}

TEST(VerifyRanks, AcceptsRanksThatMeet) {
  for (const int ranks : {2, 3, 5}) {
    EXPECT_EQ(refusal(test::exchange_programs(ranks)), "not refused");
  }
}

TEST(VerifyRanks, RefusesACollectiveThatAMemberDoesNotDo) {
  EXPECT_THAT(refusal({reduces(0, {"dp", "dp"}), reduces(1, {"dp"})}),
              AllOf(HasSubstr("instruction 1 'all_reduce' of rank 0 on group dp@compute"),
                    HasSubstr("has no counterpart on rank 1")));
}

TEST(VerifyRanks, RefusesDifferentSizesKindsAndTypes) {
  EXPECT_THAT(refusal({reduces(0, {"dp"}, 8), reduces(1, {"dp"}, 9)}),
              AllOf(HasSubstr("on group dp@compute"), HasSubstr("all_reduce of [1, 8, 1] float32"),
                    HasSubstr("instruction 0 'all_reduce' of rank 1"), HasSubstr("[1, 9, 1]")));
  std::vector<Program> ranks = {reduces(0, {"dp"}), reduces(1, {"dp"})};
  std::get<CollectiveWork>(ranks[1].instructions[0].work).op = ReduceOp::Max;
  EXPECT_THAT(refusal(ranks), HasSubstr("all_reduce"));
  ranks[1] = reduces(1, {"dp"}, 8);
  for (Operand* operand :
       {&ranks[1].instructions[0].inputs[0], &ranks[1].instructions[0].outputs[0]}) {
    operand->dtype = DType::Int32;
  }
  EXPECT_THAT(refusal(ranks), HasSubstr("int32"));
  ranks[1] = reduces(1, {"dp"}, 8);
  std::get<CollectiveWork>(ranks[1].instructions[0].work).kind = CollectiveKind::Broadcast;
  EXPECT_THAT(refusal(ranks), HasSubstr("broadcast"));
}

TEST(VerifyRanks, RefusesAGroupThatAMemberDoesNotHave) {
  std::vector<Program> ranks = {reduces(0, {"dp"}), reduces(1, {"dp"})};
  ranks[1].groups.pop_back();
  EXPECT_THAT(refusal(ranks), HasSubstr("group tp@compute has member 1"));
}

TEST(VerifyRanks, RefusesProgramsOfTheWrongRanks) {
  EXPECT_THAT(refusal({reduces(1, {}), reduces(0, {})}), HasSubstr("says that it is rank 1 of 2"));
}

TEST(VerifyRanks, NamesTheInstructionsOfADeadlock) {
  EXPECT_THAT(refusal({reduces(0, {"dp", "tp"}), reduces(1, {"tp", "dp"})}),
              AllOf(HasSubstr("wait for each other for ever"),
                    HasSubstr("instruction 0 'all_reduce' of rank 0"),
                    HasSubstr("instruction 0 'all_reduce' of rank 1")));
}

/// A ring of three: each rank sends to the next and receives from the one before.
Program ring(int rank, bool send_first) {
  Builder b(rank, 3);
  const Operand out = b.state("out", {4}, Lane::Window);
  const Operand in = b.state("in", {4}, Lane::Window);
  const GroupId all = b.group("pp", 0, {0, 1, 2});
  if (send_first) b.send(all, (rank + 1) % 3, out);
  b.receive(all, (rank + 2) % 3, in);
  if (!send_first) b.send(all, (rank + 1) % 3, out);
  return b.finish();
}

TEST(VerifyRanks, SeesThatARingOfBlockingSendsNeedsOneThatReceivesFirst) {
  EXPECT_THAT(refusal({ring(0, true), ring(1, true), ring(2, true)}),
              HasSubstr("wait for each other"));
  EXPECT_THAT(refusal({ring(0, false), ring(1, false), ring(2, false)}),
              HasSubstr("wait for each other"));
  EXPECT_EQ(refusal({ring(0, true), ring(1, false), ring(2, false)}), "not refused");
}

TEST(VerifyRanks, MatchesSendsWithReceives) {
  const auto pair = [](int rank, int transfers, std::int64_t elements) {
    Builder b(rank, 2);
    const GroupId pp = b.group("pp", 0, {0, 1});
    const Operand x = b.state("x", {elements}, Lane::Window);
    for (int i = 0; i < transfers; ++i) {
      if (rank == 0) {
        b.send(pp, 1, x);
      } else {
        b.receive(pp, 0, x);
      }
    }
    return b.finish();
  };
  EXPECT_EQ(refusal({pair(0, 2, 4), pair(1, 2, 4)}), "not refused");
  EXPECT_THAT(
      refusal({pair(0, 2, 4), pair(1, 1, 4)}),
      AllOf(HasSubstr("instruction 1 'send' of rank 0"), HasSubstr("no counterpart on rank 1")));
  EXPECT_THAT(refusal({pair(0, 0, 4), pair(1, 1, 4)}), HasSubstr("'receive' of rank 1"));
  EXPECT_THAT(refusal({pair(0, 1, 4), pair(1, 1, 5)}), HasSubstr("[1, 5, 1]"));
}

TEST(VerifyRanks, FollowsEdgesAcrossStreams) {
  // Rank 0: the reduction on stream 1 waits for the one on stream 0; rank 1 the other way round.
  const auto crossed = [](int rank) {
    Builder b(rank, 2, {"compute", "communication"});
    const GroupId groups[] = {b.group("dp", 0, {0, 1}), b.group("tp", 1, {0, 1})};
    const Operand x = b.state("x", {4}, Lane::Window);
    for (const int i : {0, 1}) {
      b.collective(CollectiveKind::AllReduce, groups[i == rank ? 0 : 1], x, x);
    }
    return b.finish();
  };
  EXPECT_THAT(refusal({crossed(0), crossed(1)}), HasSubstr("wait for each other"));
}

}  // namespace
}  // namespace sw
