#include <gmock/gmock.h>

#include "base/error.hpp"
#include "program/program.hpp"
#include "tests/program/builder.hpp"

namespace sw {
namespace {

using test::Builder;
using test::part;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> three_streams() { return {"compute", "gather", "reduce"}; }

TEST(Order, AStreamRunsItsInstructionsInListOrder) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4});
  b.zero(x, 0);
  b.zero(x, 1);
  b.zero(x, 0);
  const Order order(b.program());
  EXPECT_EQ(order.previous(0), -1);
  EXPECT_EQ(order.previous(1), -1);
  EXPECT_EQ(order.previous(2), 0);
  EXPECT_TRUE(order.before(0, 2));
  EXPECT_FALSE(order.before(2, 0));
  EXPECT_FALSE(order.before(0, 1));
  EXPECT_FALSE(order.before(1, 2));
}

TEST(Order, EdgesOrderAcrossStreamsAndCarryOn) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4});
  for (const StreamId stream : {0, 1, 2, 2, 0}) b.zero(x, stream);
  b.program().instructions[1].after = {0};
  b.program().instructions[3].after = {1};
  const Order order(b.program());
  EXPECT_TRUE(order.before(0, 3)) << "by way of 1";
  EXPECT_FALSE(order.before(0, 2));
  EXPECT_FALSE(order.before(3, 4));
  EXPECT_THAT(order.predecessors(3), ElementsAre(1, 2));
  EXPECT_THAT(order.predecessors(0), IsEmpty());
  EXPECT_EQ(order.last_before(3, 0), 0);
  EXPECT_EQ(order.last_before(3, 2), 2);
}

TEST(Order, RefusesEdgesThatLeadBackwards) {
  Builder b;
  const Operand x = b.state("x", {4});
  b.zero(x);
  b.program().instructions[0].after = {0};
  EXPECT_THROW(Order{b.program()}, InternalError);
}

TEST(DataEdges, AReaderFollowsTheWriterOfAnotherStream) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4});
  const Operand y = b.tensor("y", {4});
  b.zero(x, 0);
  b.kernel("add", {x, x}, y, 1);
  add_data_edges(b.program());
  EXPECT_THAT(b.program().instructions[1].after, ElementsAre(0));
}

TEST(DataEdges, AWriterFollowsTheLastReadersOfAllStreams) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4});
  b.kernel("add", {x, x}, b.tensor("y", {4}), 1);  // 0
  b.kernel("add", {x, x}, b.tensor("z", {4}), 1);  // 1: implies 0
  b.kernel("add", {x, x}, b.tensor("u", {4}), 2);  // 2
  b.zero(x, 0);                                    // 3
  add_data_edges(b.program());
  EXPECT_THAT(b.program().instructions[3].after, ElementsAre(1, 2));
}

TEST(DataEdges, InstructionsOnDifferentBytesOfABufferNeedNone) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {8});
  b.zero(part(x, 0, 4), 0);
  b.zero(part(x, 4, 4), 1);
  b.kernel("add", {part(x, 2, 4), part(x, 2, 4)}, b.tensor("y", {4}), 2);
  add_data_edges(b.program());
  EXPECT_THAT(b.program().instructions[1].after, IsEmpty());
  EXPECT_THAT(b.program().instructions[2].after, ElementsAre(0, 1));
}

TEST(DataEdges, WhatIsImpliedIsLeftOutAndWhatStandsStays) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4});
  const Operand y = b.state("y", {4});
  b.zero(x, 0);                                    // 0
  b.kernel("add", {x, x}, y, 1);                   // 1 after 0
  b.kernel("add", {x, y}, b.tensor("z", {4}), 2);  // 2 after 1, which implies 0
  b.zero(b.tensor("u", {4}), 2);                   // 3 touches nothing of the others
  b.program().instructions[3].after = {0};
  add_data_edges(b.program());
  EXPECT_THAT(b.program().instructions[2].after, ElementsAre(1));
  EXPECT_THAT(b.program().instructions[3].after, ElementsAre(0));
}

TEST(DataEdges, AnAccumulatingOutputIsReadToo) {
  Builder b(0, 1, three_streams());
  const Operand x = b.state("x", {4, 4});
  const Operand w = b.state("w", {4, 4});
  b.zero(w, 1);
  b.add("einsum", KernelWork{"einsum", kernels::EinsumParameters{"ab,bc->ac"}, {true}}, {x, x}, {w},
        0);
  b.kernel("add", {w, w}, b.tensor("y", {4, 4}), 1);
  add_data_edges(b.program());
  EXPECT_THAT(b.program().instructions[1].after, ElementsAre(0));
  EXPECT_THAT(b.program().instructions[2].after, ElementsAre(1));
}

}  // namespace
}  // namespace sw
