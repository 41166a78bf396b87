#include <gmock/gmock.h>

#include <functional>

#include "base/error.hpp"
#include "kernels/kernel.hpp"
#include "program/operand_counts.hpp"
#include "program/program.hpp"
#include "tests/program/builder.hpp"

namespace sw {
namespace {

using test::Builder;
using test::part;
using ::testing::HasSubstr;

/// A Program with a bit of everything, rank 1 of 3; it verifies.
///
///   0 zero x, 1 add -> y, 2 slice y -> z, 3 all_reduce w on "communication", 4 add w + z -> v
Builder sound() {
  Builder b(1, 3, {"compute", "communication"});
  const Operand state = b.state("state", {8});
  const Operand x = b.tensor("x", {8});
  const Operand y = b.tensor("y", {8});
  const Operand z = b.tensor("z", {4});
  const Operand w = b.tensor("w", {4}, Lane::Window);
  const Operand v = b.tensor("v", {4});
  const GroupId dp = b.group("dp", 1, {0, 1});
  b.zero(x);
  b.kernel("add", {x, state}, y);
  b.add("slice", SliceWork{0, 4}, {y}, {z});
  b.zero(w, 1);
  b.collective(CollectiveKind::AllReduce, dp, w, w);
  b.kernel("add", {w, z}, v);
  return b;
}

/// The message with which `verify` refuses a sound Program that `damage` has been done to.
std::string refusal(const std::function<void(Program&)>& damage) {
  Program program = sound().finish();
  damage(program);
  try {
    verify(program);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "not refused";
}

Instruction& instruction(Program& program, InstructionId id) {
  return program.instructions[static_cast<std::size_t>(id)];
}

Operand whole(BufferId buffer) { return {buffer, 0, DType::Float32, {}}; }

TEST(Verify, AcceptsASoundProgram) { EXPECT_NO_THROW(verify(sound().finish())); }

TEST(Verify, LetsOnlyCopiesAndTheOptimizerTouchTheHost) {
  const auto refusal_of = [](const auto& add) {
    Builder b;
    const Operand x = b.state("x", {8});
    const Operand kept = b.state("kept", {8}, Lane::Host);
    add(b, x, kept);
    try {
      verify(b.finish());
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  const auto copy = [](Builder& b, const Operand& from, const Operand& to) {
    b.add("copy", CopyWork{}, {from}, {to});
  };
  EXPECT_EQ(refusal_of(copy), "not refused");
  EXPECT_THAT(refusal_of([&](Builder& b, const Operand& x, const Operand&) { copy(b, x, x); }),
              HasSubstr("from 'x' to 'x' does not cross the link"));
  EXPECT_THAT(refusal_of([&](Builder& b, const Operand& x, const Operand& kept) {
                copy(b, part(x, 0, 4), part(kept, 0, 3));
              }),
              HasSubstr("a copy of float32 [4] as float32 [3]"));
  EXPECT_THAT(refusal_of([](Builder& b, const Operand& x, const Operand& kept) {
                b.kernel("add", {x, kept}, x);
              }),
              HasSubstr("touches 'kept', which is in the host's memory"));
  EXPECT_THAT(refusal_of([](Builder& b, const Operand&, const Operand& kept) { b.zero(kept); }),
              HasSubstr("touches 'kept'"));
}

TEST(Verify, RefusesOperandsOutsideBuffers) {
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 0).outputs[0].shape = {9}; }),
              HasSubstr("'zero' uses 36 bytes at 0 of buffer 'x', which has 32"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 1).inputs[0].offset = 4; }),
              HasSubstr("'add' uses 32 bytes at 4 of buffer 'x'"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 1).inputs[0].buffer = 6; }),
              HasSubstr("uses buffer 6 of 6"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 0).outputs[0].offset = -4; }),
              HasSubstr("at -4"));
  EXPECT_THAT(refusal([](Program& p) {
                instruction(p, 0).outputs[0].shape = {1LL << 31, 1LL << 31};
              }),
              HasSubstr("63 bits"));
}

TEST(Verify, RefusesEdgesBackwardsOrInsideAStream) {
  EXPECT_THAT(refusal([](Program& p) {
                instruction(p, 2).after = {3, 4};
              }),
              HasSubstr("instruction 2 'slice' of rank 1: its edges must ascend"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 2).after = {1}; }),
              HasSubstr("an edge from instruction 1 of its own stream"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 5).after = {4, 4}; }), HasSubstr("ascend"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 2).stream = 2; }),
              HasSubstr("stream 2 of 2"));
}

TEST(Verify, RefusesGroupsOfOthersOrOnAnotherStream) {
  EXPECT_THAT(refusal([](Program& p) {
                p.groups[0].members = {0, 2};
              }),
              HasSubstr("rank 1 is no member of its group 'dp'"));
  EXPECT_THAT(refusal([](Program& p) { p.groups[0].stream = 0; }),
              HasSubstr("a group that belongs to stream 0"));
  EXPECT_THAT(refusal([](Program& p) { p.groups[0].members = {1, 0}; }), HasSubstr("ascend"));
  EXPECT_THAT(refusal([](Program& p) { p.groups[0].members = {1, 3}; }), HasSubstr("[0, 3)"));
  EXPECT_THAT(refusal([](Program& p) { p.groups[0].members = {1}; }), HasSubstr("1 members"));
  EXPECT_THAT(refusal([](Program& p) { p.groups.push_back(p.groups[0]); }),
              HasSubstr("two groups 'dp' on one stream"));
  EXPECT_THAT(
      refusal([](Program& p) { std::get<CollectiveWork>(instruction(p, 4).work).group = 1; }),
      HasSubstr("group 1 of 1"));
}

TEST(Verify, RefusesAReadBeforeAWrite) {
  const std::string message =
      refusal([](Program& p) { instruction(p, 0).outputs[0] = part(whole(1), 0, 7); });
  EXPECT_THAT(message, HasSubstr("instruction 1 'add' of rank 1: reads bytes [0, 32) of 'x'"));
  EXPECT_THAT(refusal([](Program& p) { p.buffers[0].persistent = false; }),
              HasSubstr("of 'state' before all of them are written"));
}

TEST(Verify, TakesWhatTheHostWritesAsWritten) {
  Builder b;
  const Operand x = b.state("x", {4});
  const Operand key = b.tensor("key", {2}, Lane::Private, false, DType::Int64);
  b.add("dropout", KernelWork{"dropout", kernels::DropoutParameters{}, {false}}, {x, key}, {x});
  EXPECT_THROW(verify(b.finish()), InternalError);
  b.program().host.dropout_key = key;
  EXPECT_NO_THROW(verify(b.finish()));
}

TEST(Verify, RefusesBuffersThatLiveAtOnceAndShareBytes) {
  EXPECT_THAT(refusal([](Program& p) { p.buffers[2].offset = p.buffers[1].offset; }),
              HasSubstr("buffers 'x' and 'y' are live at once and share bytes"));
  EXPECT_THAT(refusal([](Program& p) { p.buffers[1].offset = 0; }), HasSubstr("'state' and 'x'"));
  // x and z do not live at once.
  EXPECT_EQ(refusal([](Program& p) {
              p.buffers[3].offset = p.buffers[1].offset;
              p.buffers[5].offset = p.buffers[2].offset;
            }),
            "not refused");
}

TEST(Verify, RefusesReuseAcrossStreamsThatNothingOrders) {
  Builder b(0, 1, {"compute", "other"});
  b.zero(b.tensor("x", {4}), 0);
  b.zero(b.tensor("y", {4}), 1);
  Program program = b.finish();
  program.buffers[1].offset = 0;
  EXPECT_THROW(verify(program), InternalError);
  program.instructions[1].after = {0};
  EXPECT_NO_THROW(verify(program));
}

TEST(Verify, RefusesARace) {
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 5).after.clear(); }),
              HasSubstr("instruction 5 'add' of rank 1: a race with instruction 4 'all_reduce'"));
  // A later write must wait for the readers of another stream.
  Builder b(0, 1, {"compute", "other"});
  const Operand x = b.state("x", {4});
  b.kernel("add", {x, x}, b.tensor("y", {4}), 1);
  b.zero(x, 0);
  Program program = b.finish();
  EXPECT_NO_THROW(verify(program));
  program.instructions[1].after.clear();
  EXPECT_THROW(verify(program), InternalError);
}

TEST(Verify, RefusesWrongOperandCountsOfKernels) {
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 1).inputs.pop_back(); }),
              HasSubstr("add takes 2 inputs and has 1"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 1).outputs.clear(); }),
              HasSubstr("add has 1 outputs and is given 0"));
  EXPECT_THAT(refusal([](Program& p) { std::get<KernelWork>(instruction(p, 1).work).op = "ad"; }),
              HasSubstr("there is no kernel 'ad'"));
  EXPECT_THAT(
      refusal([](Program& p) { std::get<KernelWork>(instruction(p, 1).work).accumulate.clear(); }),
      HasSubstr("0 marks of accumulation"));
}

TEST(Verify, KnowsTheOperandsOfEveryKernelThereIs) {
  std::vector<std::string> known;
  for (const OperandCounts& counts : operand_counts()) known.emplace_back(counts.op);
  EXPECT_EQ(known, kernels::cpu_kernel_names());
}

TEST(Verify, AllowsWorkInPlaceOnlyWhereTheKernelDoes) {
  EXPECT_EQ(refusal([](Program& p) {
              instruction(p, 1).outputs[0] = instruction(p, 1).inputs[0];
              instruction(p, 2).inputs[0] = instruction(p, 1).inputs[0];
              p.buffers.pop_back();
              instruction(p, 5).outputs[0] = part(whole(2), 0, 4);
              map_memory(p);
            }),
            "not refused");
  EXPECT_THAT(refusal([](Program& p) {
                std::get<KernelWork>(instruction(p, 1).work).op = "einsum";
                instruction(p, 1).outputs[0] = instruction(p, 1).inputs[0];
              }),
              HasSubstr("output 0 overwrites an input"));
  EXPECT_THAT(refusal([](Program& p) {
                instruction(p, 1).inputs[0] = part(whole(1), 0, 7);
                instruction(p, 1).outputs[0] = part(whole(1), 1, 7);
              }),
              HasSubstr("output 0 overwrites an input"));
}

TEST(Verify, RefusesWhatIsNotAligned) {
  EXPECT_THAT(refusal([](Program& p) { p.buffers[1].offset += 4; }),
              HasSubstr("not aligned to 64"));
  EXPECT_THAT(refusal([](Program& p) {
                instruction(p, 0).outputs[0] = {1, 2, DType::Float32, {4}};
              }),
              HasSubstr("float32 at byte 2 of buffer 'x': not aligned"));
}

TEST(Verify, RefusesBuffersOutsideTheirLane) {
  EXPECT_THAT(refusal([](Program& p) { p.private_bytes -= 1; }), HasSubstr("leaves its lane"));
  EXPECT_THAT(refusal([](Program& p) { p.buffers[1].offset = -64; }), HasSubstr("offset -64"));
}

TEST(Verify, LetsCollectivesTouchTheWindowOnly) {
  EXPECT_THAT(refusal([](Program& p) {
                p.buffers[4].lane = Lane::Private;
                p.buffers[4].offset = p.private_bytes = round_up(p.private_bytes, kAlignment);
                p.private_bytes += 16;
              }),
              HasSubstr("a collective touches 'w', which is not in the window"));
}

TEST(Verify, RefusesABufferThatNothingUses) {
  Builder b = sound();
  b.tensor("unused", {4});
  EXPECT_THROW(verify(b.finish()), InternalError);
}

TEST(Verify, RefusesSlicesAndSegmentsThatDoNotFit) {
  EXPECT_THAT(refusal([](Program& p) { std::get<SliceWork>(instruction(p, 2).work).start = 5; }),
              HasSubstr("a slice from 5 on dim 0 of [8] cannot be [4]"));
  EXPECT_THAT(refusal([](Program& p) { instruction(p, 4).outputs[0].shape = {3}; }),
              HasSubstr("segment 0 of [4] must have a part of 4 elements: [3]"));
  EXPECT_THAT(
      refusal([](Program& p) { std::get<CollectiveWork>(instruction(p, 4).work).dims[0] = 1; }),
      HasSubstr("cut on dim 1 of [4]"));
  EXPECT_THAT(refusal([](Program& p) {
                auto& work = std::get<CollectiveWork>(instruction(p, 4).work);
                work.kind = CollectiveKind::ReduceScatter;
              }),
              HasSubstr("must have a part of 2 elements"));
}

TEST(Verify, RefusesJoinsOfWhatIsNoPartOfTheWhole) {
  const auto refusal_of = [](int dim, const Shape& left, const Shape& right) -> std::string {
    Builder b;
    const Operand first = b.state("first", left);
    const Operand second = b.state("second", right);
    b.add("join", JoinWork{dim}, {first, second}, {b.state("whole", {2, 4})});
    try {
      verify(b.finish());
    } catch (const InternalError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(refusal_of(1, {2, 3}, {2, 1}), "not refused");
  EXPECT_THAT(refusal_of(2, {2, 3}, {2, 1}), HasSubstr("cannot be joined on dim 2"));
  EXPECT_THAT(refusal_of(1, {3, 3}, {2, 1}), HasSubstr("cannot be a part of"));
  EXPECT_THAT(refusal_of(1, {2, 3, 1}, {2, 1}), HasSubstr("cannot be a part of"));
  EXPECT_THAT(refusal_of(1, {2, 3}, {2, 2}), HasSubstr("have 5 together"));
}

TEST(Verify, RefusesSlotsThatCannotTravelSo) {
  struct Operands {
    Operand choice, order, counts, table, rows, packed, room, rounds;
  };
  const auto refusal_of =
      [](const std::function<void(Operands&, SlotWork&, CollectiveWork&)>& damage) -> std::string {
    Builder b(0, 2);
    const auto numbers = [&](const char* name, const Shape& shape, Lane lane = Lane::Private) {
      return b.tensor(name, shape, lane, true, DType::Int32);
    };
    Operands o{numbers("choice", {6}),
               numbers("order", {6}),
               numbers("counts", {1, 4}, Lane::Window),
               numbers("table", {2, 4}, Lane::Window),
               b.state("rows", {6, 5}),
               b.state("packed", {6, 5}, Lane::Window),
               b.state("room", {9, 5}, Lane::Window),
               numbers("rounds", {1})};
    SlotWork arrivals{SlotKind::Arrivals, 1, 1};
    CollectiveWork work;
    work.kind = CollectiveKind::AllToAll;
    work.group = b.group("ep", 0, {0, 1});
    work.dims = {-1};
    work.routing = Routing::ToExperts;
    damage(o, arrivals, work);
    b.add("order", SlotWork{SlotKind::Order, 0, 1}, {o.choice}, {o.order, o.counts});
    b.add("arrivals", arrivals, {o.table}, {numbers("arrived", {9}), o.rounds});
    b.add("pack", SlotWork{SlotKind::Pack, 0, 1}, {o.rows, o.order}, {o.packed});
    b.add("there", work, {o.packed, o.table}, {o.room});
    try {
      verify(b.finish());
    } catch (const InternalError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(refusal_of([](Operands&, SlotWork&, CollectiveWork&) {}), "not refused");
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) { o.order.shape = {5}; }),
              HasSubstr("int32 [6]"));
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) { o.counts.shape = {4}; }),
              HasSubstr("counts of experts"));
  EXPECT_THAT(refusal_of([](Operands&, SlotWork& work, CollectiveWork&) { work.rank = 2; }),
              HasSubstr("no table of routes for rank 2"));
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) {
                o.table.shape = {2, 3};
              }),
              HasSubstr("no table of routes"));
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) { o.rounds.shape = {}; }),
              HasSubstr("int32 [1]"));
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) {
                o.rows.shape = {5, 5};
              }),
              HasSubstr("rows of 6 slots cannot be"));
  EXPECT_THAT(refusal_of([](Operands& o, SlotWork&, CollectiveWork&) {
                o.room.shape = {9, 4};
              }),
              HasSubstr("cannot travel as rows of"));
  EXPECT_THAT(refusal_of([](Operands&, SlotWork&, CollectiveWork& work) {
                work.input_counts = {1, 1};
              }),
              HasSubstr("no counts"));
  EXPECT_THAT(refusal_of([](Operands&, SlotWork&, CollectiveWork& work) {
                work.kind = CollectiveKind::AllReduce;
                work.routing = Routing::FromExperts;
              }),
              HasSubstr("has no routes"));
}

TEST(Verify, HoldsTheWindowsWorkAndTheOptimizerToTheirOperands) {
  Builder b;
  const Operand settings = b.tensor("s", {kSettings}, Lane::Private, true, DType::Float64);
  const Operand verdict = b.tensor("v", {kVerdict}, Lane::Private, true, DType::Float64);
  const Operand gradient = b.state("g", {100});
  const Operand master = b.state("m", {100});
  const Operand first = b.state("m1", {100});
  const Operand second = b.state("m2", {100});
  OptimizerWork work;
  work.weight_decay = {0.1};
  b.add("adamw", work, {settings, verdict, gradient}, {master, first, second});
  EXPECT_NO_THROW(verify(b.finish()));
  for (const auto& damage : std::vector<std::function<void(Instruction&)>>{
           [](Instruction& i) { i.outputs.pop_back(); },
           [](Instruction& i) { i.outputs[0].shape = {99}; },
           [](Instruction& i) { std::swap(i.inputs[0], i.inputs[2]); },
           [](Instruction& i) { std::get<OptimizerWork>(i.work).states = 1; },
           [](Instruction& i) { std::get<OptimizerWork>(i.work).rule = "adam"; },
           [](Instruction& i) { std::get<OptimizerWork>(i.work).weight_decay = {}; }}) {
    Program program = b.finish();
    damage(program.instructions[0]);
    EXPECT_THROW(verify(program), InternalError);
  }
}

}  // namespace
}  // namespace sw
