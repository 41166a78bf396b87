#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "lower/compile.hpp"
#include "program/ledger.hpp"
#include "tests/lower/plans.hpp"

namespace sw {
namespace {

using test::options_of;
using test::sent;
using ::testing::HasSubstr;

/// With kv = 2·B·S·G·K·e bytes of keys and values of a micro-batch's rows: gathered in the forward
/// and again in the backward, their gradients scattered.
TEST(ContextParallel, SendsKeysAndValuesThreeTimesPerLayer) {
  for (const int cp : {2, 4}) {
    CompileOptions options = options_of(1, 1, 0);
    options.parallel.layout.cp = cp;
    options.parallel.context = ContextAlgorithm::Gather;
    const Ledger ledger = planned_ledger(Compilation(options).training(0), Algorithm::Direct);
    const std::int64_t kv = 2 * 1 * 8 * 2 * 8 * 4;
    const std::int64_t share = 3 * 2 * kv / cp * (cp - 1);  // 3 layers, 2 micro-batches
    EXPECT_EQ(sent(ledger, CollectiveKind::AllGather, "cp"), 2 * share);
    EXPECT_EQ(sent(ledger, CollectiveKind::ReduceScatter, "cp"), share);
  }
}

/// Queries and what attention makes of them, keys and values: of each its gradient too, and of each
/// a rank sends what the others' heads need of its tokens.
TEST(ContextParallel, ExchangesEachTokenForHeadsOnceEachWay) {
  for (const int cp : {2, 4}) {
    CompileOptions options = options_of(1, 1, 0);
    options.model.heads = 8;
    options.model.kv_heads = 4;
    options.parallel.layout.cp = cp;
    options.parallel.context = ContextAlgorithm::AllToAll;
    options.sequence = 24;
    const Compilation compilation(options);
    const std::int64_t q = 24 * 8 * options.model.head_dim * 4;
    const std::int64_t kv = 2 * 24 * 4 * options.model.head_dim * 4;
    for (int rank = 0; rank < cp; ++rank) {
      const Ledger ledger = planned_ledger(compilation.training(rank), Algorithm::Direct);
      // 3 layers, 2 micro-batches
      EXPECT_EQ(sent(ledger, CollectiveKind::AllToAll, "cp"),
                3 * 2 * 2 * (cp - 1) * (2 * q + kv) / (cp * cp));
      EXPECT_EQ(ledger.at({CollectiveKind::AllToAll, "cp"}).calls, 3 * 2 * 8);
      EXPECT_FALSE(ledger.contains({CollectiveKind::AllGather, "cp"}));
    }
  }
}

TEST(ContextParallel, RefusesToExchangeHeadsThatDoNotDivide) {
  CompileOptions options = options_of(1, 2, 0);
  options.model.heads = 8;
  options.model.kv_heads = 4;
  options.parallel.layout.cp = 4;
  options.parallel.context = ContextAlgorithm::AllToAll;
  options.sequence = 32;
  const auto refusal = [&]() -> std::string {
    try {
      const Compilation compilation(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  options.parallel.sequence_parallel = false;
  EXPECT_THAT(refusal(), HasSubstr("4 key and value heads over cp x tp = 4 x 2 ranks"));
  options.parallel.layout.cp = 2;
  options.parallel.sequence_parallel = true;
  EXPECT_THAT(refusal(), HasSubstr("sequence_parallel = false"));
}

CompileOptions ring_of(int cp) {
  CompileOptions options = options_of(1, 1, 0);
  options.parallel.layout.cp = cp;
  options.parallel.context = ContextAlgorithm::Ring;
  options.sequence = 24;
  return options;
}

/// A block, kv / C, makes C - 1 hops in the forward and in the backward, and its gradient, float32
/// whatever the block is, as many behind it. In float32 that is what gathering sends.
TEST(Ring, SendsEachBlockToAllOthersTwiceAndItsGradientBack) {
  for (const int cp : {2, 3, 4}) {
    for (const DType precision : {DType::Float32, DType::BFloat16}) {
      CompileOptions options = ring_of(cp);
      options.precision = precision;
      const std::int64_t elements = 2 * 1 * 24 * 2 * 8 / cp;
      const std::int64_t hops = 3 * 2 * (cp - 1);  // 3 layers, 2 micro-batches
      const Compilation compilation(options);
      for (int rank = 0; rank < cp; ++rank) {
        const Ledger ledger = planned_ledger(compilation.training(rank), Algorithm::Direct);
        EXPECT_EQ(sent(ledger, CollectiveKind::Send, "cp"),
                  hops * elements * (2 * size_of(precision) + 4));
        EXPECT_EQ(ledger.at({CollectiveKind::Send, "cp"}).calls, 3 * hops);
        EXPECT_FALSE(ledger.contains({CollectiveKind::AllGather, "cp"}));
      }
    }
  }
}

/// Of one layer on the last of three ranks: R receives, S sends keys and values (kv) or gradients
/// (g), A is the kernel on a block, + adds what came to what goes on. The next block is under way
/// before the kernel on this one.
TEST(Ring, BringsTheNextBlockWhileOneIsUsed) {
  CompileOptions options = ring_of(3);
  options.model.layers = 1;
  options.accumulation = 1;
  const Program program = Compilation(options).training(2);
  std::string forward;
  std::string backward;
  std::vector<InstructionId> kernels;
  std::vector<InstructionId> receives;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const auto* kernel = std::get_if<KernelWork>(&instruction.work);
    const auto* hop = std::get_if<CollectiveWork>(&instruction.work);
    std::string text;
    if (kernel != nullptr && kernel->op.starts_with("attention")) {
      text = "A" + instruction.name.substr(instruction.name.size() - 1);
      kernels.push_back(static_cast<InstructionId>(i));
    } else if (kernel != nullptr && kernel->op == "add" && instruction.name.starts_with("add ")) {
      text = "+";
    } else if (hop != nullptr &&
               (hop->kind == CollectiveKind::Send || hop->kind == CollectiveKind::Receive)) {
      text = hop->kind == CollectiveKind::Send ? "S" : "R";
      text += instruction.name.ends_with("gradients") ? "g" : "kv";
      EXPECT_EQ(program.streams[static_cast<std::size_t>(instruction.stream)],
                hop->kind == CollectiveKind::Send ? "ring 2>0" : "ring 1>2");
      if (text == "Rkv") {
        receives.push_back(static_cast<InstructionId>(i));
      }
    } else {
      continue;
    }
    (instruction.phase == Phase::Forward ? forward : backward) += " " + text;
  }
  EXPECT_EQ(forward, " Rkv Skv A2 Rkv Skv A1 A0");
  EXPECT_EQ(backward, " Rkv Skv A2 Rkv Skv A1 Sg Rg A0 + + Sg Rg + +");
  const Order order(program);
  for (const std::size_t i : {0, 1, 2, 3}) {
    const InstructionId kernel = kernels[i + i / 2];  // the third of a direction has no next block
    EXPECT_FALSE(order.before(kernel, receives[i]));
    EXPECT_FALSE(order.before(receives[i], kernel));
    EXPECT_TRUE(order.before(receives[i], kernels[i + i / 2 + 1]));
  }
}

/// Two blocks of keys and values beside one's own, whatever the number of ranks, where gathering
/// holds all of them: 2 / C. And so the step needs less, however many layers there are.
TEST(Ring, HoldsTwoBlocksOfKeysAndValues) {
  for (const int cp : {3, 4, 6}) {
    const auto bytes = [](const Program& program, CollectiveKind kind) {
      std::map<BufferId, std::int64_t> buffers;
      for (const Instruction& instruction : program.instructions) {
        const auto* work = std::get_if<CollectiveWork>(&instruction.work);
        const bool first = instruction.micro_batch == 0 && instruction.phase == Phase::Forward;
        for (const Operand& output : instruction.outputs) {
          if (work != nullptr && work->kind == kind && first) {
            buffers[output.buffer] = program.buffers[static_cast<std::size_t>(output.buffer)].bytes;
          }
        }
      }
      std::int64_t sum = 0;
      for (const auto& [buffer, size] : buffers) {
        sum += size;
      }
      return sum;
    };
    CompileOptions options = ring_of(cp);
    options.sequence = 24 * 16;
    options.model.kv_heads = options.model.heads;  // so wide that nothing else makes the peak
    options.model.head_dim = 64;
    const Program ring = Compilation(options).training(0);
    options.parallel.context = ContextAlgorithm::Gather;
    const Program gather = Compilation(options).training(0);
    EXPECT_EQ(bytes(ring, CollectiveKind::Receive) * cp,
              bytes(gather, CollectiveKind::AllGather) * 2);
    // In the backward six blocks of keys and values or their gradients, of which gathering has 2C.
    if (cp > 3) {
      EXPECT_LT(ring.window_bytes, gather.window_bytes);
      EXPECT_LT(memory_account(ring).peak, memory_account(gather).peak);
    }
  }
}

}  // namespace
}  // namespace sw
