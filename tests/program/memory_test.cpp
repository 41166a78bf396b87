#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "program/program.hpp"
#include "tests/program/any_numbers.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/random_program.hpp"

namespace sw {
namespace {

using test::Builder;
using test::Choices;

constexpr std::int64_t kKiB = 1024;

/// A chain x0 -> x1 -> … of `sizes` KiB: two neighbours live at a time.
Program chain(const std::vector<std::int64_t>& sizes, StreamId stream_of_odd = 0) {
  Builder b(0, 1, {"compute", "other"});
  Operand previous = b.tensor("x0", {sizes[0] * kKiB / 4});
  b.zero(previous);
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const Operand next = b.tensor(fmt::format("x{}", i), {sizes[i] * kKiB / 4});
    b.kernel("cast", {previous}, next, i % 2 == 1 ? stream_of_odd : 0);
    previous = next;
  }
  return b.finish();
}

TEST(MemoryMap, AChainTakesItsLargestNeighbours) {
  EXPECT_EQ(chain({3, 1, 3, 1, 3}).private_bytes, 4 * kKiB);
  EXPECT_EQ(chain({1, 2, 4, 2, 1}).private_bytes, 6 * kKiB);
  EXPECT_EQ(chain({5}).private_bytes, 5 * kKiB);
}

TEST(MemoryMap, EdgesAcrossStreamsAllowReuse) {
  // Each link follows the one before on the other stream, so the chain is as good as on one stream.
  EXPECT_EQ(chain({3, 1, 3, 1, 3}, 1).private_bytes, 4 * kKiB);
}

TEST(MemoryMap, StreamsWithoutEdgesShareNothing) {
  Builder b(0, 1, {"compute", "other"});
  b.zero(b.tensor("x", {256}), 0);
  b.zero(b.tensor("y", {256}), 1);
  EXPECT_EQ(b.finish().private_bytes, 2 * kKiB);
  Builder same;
  same.zero(same.tensor("x", {256}));
  same.zero(same.tensor("y", {256}));
  EXPECT_EQ(same.finish().private_bytes, kKiB);
}

TEST(MemoryMap, PersistentBuffersComeFirstInOrderAndStay) {
  Builder b;
  const Operand w = b.state("w", {10});
  const Operand v = b.state("v", {100});
  b.zero(b.tensor("x", {16}));
  b.zero(w);
  b.zero(v);
  const Program program = b.finish();
  EXPECT_EQ(program.buffers[0].offset, 0);
  EXPECT_EQ(program.buffers[1].offset, 64);
  EXPECT_EQ(program.buffers[2].offset, 64 + 448);
  EXPECT_EQ(program.private_bytes, 64 + 448 + 64);
}

TEST(MemoryMap, LanesAreMappedApart) {
  Builder b;
  b.zero(b.tensor("x", {256}));
  b.zero(b.tensor("y", {512}, Lane::Window));
  const Program program = b.finish();
  EXPECT_EQ(program.private_bytes, kKiB);
  EXPECT_EQ(program.window_bytes, 2 * kKiB);
}

TEST(MemoryMap, ALaneEndsWithItsLastBytesAndNotAtTheAlignment) {
  Builder b;
  b.zero(b.tensor("x", {3}));
  EXPECT_EQ(b.finish().private_bytes, 12);
}

TEST(MemoryMap, WhatTheHostWritesLivesFromTheStartAndWhatItReadsToTheEnd) {
  Builder b;
  const Operand before = b.tensor("before", {256});
  const Operand settings = b.tensor("settings", {kSettings}, Lane::Private, false, DType::Float64);
  const Operand loss = b.tensor("loss", {});
  const Operand after = b.tensor("after", {256});
  b.zero(before);
  b.zero(loss);
  b.add("use", KernelWork{"cast", {}, {false}}, {settings}, {b.tensor("y", {3})});
  b.zero(after);
  b.program().host.settings = settings;
  b.program().host.loss = loss;
  const Program program = b.finish();
  EXPECT_NO_THROW(verify(program));
  // before and after share; settings, loss and one of them never do.
  EXPECT_EQ(program.private_bytes, kKiB + 64 + 4);
}

TEST(MemoryAccount, NamesWhatEachCategoryHoldsAtThePeakAndTheRestIsGaps) {
  Builder b;
  b.state("w", {10});
  b.program().buffers[0].category = Category::Parameters;
  const Operand x = b.tensor("x", {256});
  const Operand y = b.tensor("y", {256}, Lane::Window);
  const Operand z = b.tensor("z", {512});
  b.program().buffers[2].category = Category::Communication;
  b.program().buffers[3].category = Category::Gradients;
  b.zero(x);
  b.kernel("cast", {x}, y);
  b.zero(z);
  const Program program = b.finish();
  const MemoryAccount account = memory_account(program);
  EXPECT_EQ(account.parameters, 40);
  EXPECT_EQ(account.activations, 0) << "x is gone when z makes the peak of its lane";
  EXPECT_EQ(account.gradients, 2 * kKiB);
  EXPECT_EQ(account.communication, kKiB);
  EXPECT_EQ(account.gaps, 24);
  EXPECT_EQ(account.peak, 64 + 3 * kKiB);
}

/// reachable[a][b]: b can only start after a has ended. Found by walking, not by clocks.
std::vector<std::vector<bool>> reachable(const Program& program) {
  const std::size_t n = program.instructions.size();
  std::vector<std::vector<bool>> result(n, std::vector<bool>(n, false));
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::size_t> direct;
    for (std::size_t j = 0; j < i; ++j) {
      if (program.instructions[j].stream == program.instructions[i].stream) direct.push_back(j);
    }
    for (const InstructionId edge : program.instructions[i].after) {
      direct.push_back(static_cast<std::size_t>(edge));
    }
    for (const std::size_t j : direct) {
      result[j][i] = true;
      for (std::size_t k = 0; k < j; ++k) {
        if (result[k][j]) result[k][i] = true;
      }
    }
  }
  return result;
}

std::vector<std::size_t> users(const Program& program, std::size_t buffer) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const auto* operands :
         {&program.instructions[i].inputs, &program.instructions[i].outputs}) {
      for (const Operand& operand : *operands) {
        if (operand.buffer == static_cast<BufferId>(buffer)) list.push_back(i);
      }
    }
  }
  return list;
}

bool all_before(const std::vector<std::vector<bool>>& order, const std::vector<std::size_t>& a,
                const std::vector<std::size_t>& b) {
  for (const std::size_t i : a) {
    for (const std::size_t j : b) {
      if (!order[i][j]) return false;
    }
  }
  return true;
}

RC_GTEST_PROP(MemoryMap, NeverLetsBuffersThatLiveAtOnceShareBytes, ()) {
  Program program = test::random_program(Choices(*test::any_numbers()));
  add_data_edges(program);
  map_memory(program);
  const auto order = reachable(program);
  for (std::size_t a = 0; a < program.buffers.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Buffer& x = program.buffers[a];
      const Buffer& y = program.buffers[b];
      const bool apart =
          x.lane != y.lane || x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
      if (apart) continue;
      RC_ASSERT(!x.persistent && !y.persistent);
      const auto users_of_a = users(program, a);
      const auto users_of_b = users(program, b);
      RC_ASSERT(all_before(order, users_of_a, users_of_b) ||
                all_before(order, users_of_b, users_of_a));
    }
  }
  verify(program);
}

RC_GTEST_PROP(DataEdges, OrderWhateverTouchesTheSameBytesAndNothingTwice, ()) {
  Program program = test::random_program(Choices(*test::any_numbers()));
  add_data_edges(program);
  const auto order = reachable(program);
  const auto touch = [](const Operand& a, const Operand& b) {
    return a.buffer == b.buffer && a.offset < b.offset + bytes_of(b) &&
           b.offset < a.offset + bytes_of(a);
  };
  for (std::size_t j = 0; j < program.instructions.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      const Instruction& first = program.instructions[i];
      const Instruction& second = program.instructions[j];
      bool conflict = touch(first.outputs[0], second.outputs[0]);
      for (const Operand& in : second.inputs) conflict = conflict || touch(first.outputs[0], in);
      for (const Operand& in : first.inputs) conflict = conflict || touch(second.outputs[0], in);
      RC_ASSERT(!conflict || order[i][j]);
    }
    // No edge is implied by another edge or by the stream.
    const std::vector<InstructionId>& after = program.instructions[j].after;
    for (const InstructionId edge : after) {
      for (std::size_t k = 0; k < j; ++k) {
        const bool direct =
            program.instructions[k].stream == program.instructions[j].stream ||
            std::find(after.begin(), after.end(), static_cast<InstructionId>(k)) != after.end();
        RC_ASSERT(!direct || !order[static_cast<std::size_t>(edge)][k]);
      }
    }
  }
}

}  // namespace
}  // namespace sw
