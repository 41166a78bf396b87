#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "graph/operator.hpp"
#include "lower/compile.hpp"
#include "program/ledger.hpp"
#include "simulate/simulate.hpp"
#include "tests/lower/plans.hpp"

namespace sw {
namespace {

using test::options_of;
using test::sent;
using test::unit_bytes;
using ::testing::HasSubstr;

/// Sent per rank and window with q = (n-1)/n and M micro-batches: zero 0 2q·Ug; 1 q·Ug + q·U; 2
/// M·q·Ug + q·U; 3 M·q·Ug + 2M·q·U, where embedding and head, whose weights one direction uses, are
/// gathered once. Count and loss travel on the same axis: 8 and 4 bytes, reduced.
TEST(DataParallel, SendsTheBytesOfTheClosedFormPerLevel) {
  constexpr int kMicroBatches = 2;
  for (const int n : {2, 3, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      CompileOptions options = options_of(n, 1, zero);
      if (zero >= 2) {
        options.parallel.reduce_gradients = ReduceGradients::MicroBatch;
      }
      const Compilation compilation(options);
      const Ledger ledger = planned_ledger(compilation.training(0), Algorithm::Direct);
      std::int64_t all = 0;
      std::int64_t used_twice = 0;
      for (const Unit& unit : compilation.state(0).units) {
        all += unit.elements * 4;
        const bool layer = unit.name.starts_with("layers.") || unit.name == "small";
        used_twice += layer ? unit.elements * 4 : 0;
      }
      const std::int64_t share = all / n * (n - 1);
      const std::int64_t again = used_twice / n * (n - 1);
      std::int64_t scalars =
          0;  // an all-reduce of one element: rank 0 owns it and sends it to the others
      for (const std::int64_t element : {8, 4}) {
        scalars += element * (n - 1);
      }
      EXPECT_EQ(sent(ledger, CollectiveKind::AllReduce, "dp"),
                (zero == 0 ? 2 * share : 0) + scalars);
      EXPECT_EQ(sent(ledger, CollectiveKind::ReduceScatter, "dp"),
                share * (zero == 0   ? 0
                         : zero == 1 ? 1
                                     : kMicroBatches));
      EXPECT_EQ(sent(ledger, CollectiveKind::AllGather, "dp"),
                zero == 0  ? 0
                : zero < 3 ? share
                           : kMicroBatches * (share + again));
    }
  }
}

/// The field's worked example: 8 MiB of parameters on 4 ranks send 12, 12, 12 and 18 MiB.
TEST(DataParallel, OfEightMebibytesOnFourRanksSendsTheWorkedExample) {
  for (const int zero : {0, 1, 2, 3}) {
    CompileOptions options = options_of(4, 1, zero);
    options.model.hidden = 256;
    options.model.layers = 2;
    options.model.heads = options.model.kv_heads = 4;
    options.model.head_dim = 64;
    options.model.feed_forward = 1024;  // a layer: 4 x 256 x 256 + 3 x 256 x 1024 = 2^20 weights
    options.accumulation = 1;
    const Program program = Compilation(options).training(0);
    std::int64_t bytes = 0;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.name.find("layers.") == std::string::npos) {
        continue;
      }
      if (const auto* work = std::get_if<CollectiveWork>(&instruction.work)) {
        const std::int64_t whole =
            bytes_of(work->kind == CollectiveKind::AllGather ? instruction.outputs.front()
                                                             : instruction.inputs.front());
        bytes += whole / 4 * (work->kind == CollectiveKind::AllReduce ? 6 : 3);
      }
    }
    EXPECT_EQ(bytes, (zero < 3 ? 12 : 18) * 1024 * 1024) << "level " << zero;
  }
}

/// bfloat16 with float32 masters: 2 (weights) + 4 (gradients) + 12 (master, two moments) bytes per
/// (padded) parameter; level 1 divides the last, 2 the gradients too, 3 all.
TEST(State, HasTheBytesPerParameterOfItsPrecisionAndLevel) {
  for (const int zero : {0, 1, 2, 3}) {
    CompileOptions options = options_of(4, 1, zero);
    options.precision = DType::BFloat16;
    const Compilation compilation(options);
    std::int64_t elements = 0;
    for (const Unit& unit : compilation.state(2).units) {
      elements += unit.elements;
    }
    const MemoryAccount memory = memory_account(compilation.training(2));
    EXPECT_EQ(memory.parameters, 2 * elements / (zero >= 3 ? 4 : 1));
    EXPECT_EQ(memory.gradients, 4 * elements / (zero >= 2 ? 4 : 1));
    EXPECT_EQ(memory.optimizer, 12 * elements / (zero >= 1 ? 4 : 1));
  }
}

/// The worked example of 2 + 2 + 12 GB on four ranks: a billion weights in bfloat16, gradients
/// too. The plan counts padding as well, up to 2 blocks a tensor and 16 bytes an element.
TEST(State, OfABillionWeightsTakes16And7And5AndAHalfAnd4Gigabytes) {
  CompileOptions options = options_of(4, 1, 0);
  options.precision = options.gradient_precision = DType::BFloat16;
  options.model.hidden = 1000;
  options.model.layers = 25;
  options.model.heads = options.model.kv_heads = 10;
  options.model.head_dim = 100;
  options.model.feed_forward = 2731;
  options.model.vocabulary = 347562;
  ASSERT_EQ(parameter_count(options.model), 1'000'000'000);
  constexpr double kPadding = (25 * 9 + 3) * 2.0 * kUnitBlock * 16 / 1e9;
  const double expected[] = {16, 7, 5.5, 4};
  for (const int zero : {0, 1, 2, 3}) {
    options.parallel.zero = zero;
    const MemoryAccount memory = memory_account(Compilation(options).training(1));
    const auto bytes = static_cast<double>(memory.parameters + memory.gradients + memory.optimizer);
    EXPECT_GE(bytes / 1e9, expected[zero]);
    EXPECT_LE(bytes / 1e9, expected[zero] + kPadding);
  }
}

/// Half of what float32 gradients send; weights travel as they are.
TEST(GradientPrecision, IsThatOfAccumulatorsAndOfTheWire) {
  for (const int zero : {0, 1, 2, 3}) {
    CompileOptions options = options_of(4, 2, zero);
    options.parallel.zero_group = zero == 2 ? 2 : 0;
    options.parallel.reduce_gradients =
        zero == 3 ? ReduceGradients::MicroBatch : ReduceGradients::Window;
    const Program numbers = Compilation(options).training(0);
    options.gradient_precision = DType::BFloat16;
    const Program halves = Compilation(options).training(0);
    EXPECT_EQ(2 * unit_bytes(halves, "gradients"), unit_bytes(numbers, "gradients"));
    EXPECT_EQ(unit_bytes(halves, "weights"), unit_bytes(numbers, "weights"));
    const auto gradients_sent = [](const Program& program) {
      std::int64_t bytes = 0;
      for (const Instruction& instruction : program.instructions) {
        const auto* work = std::get_if<CollectiveWork>(&instruction.work);
        if (work != nullptr && instruction.name.starts_with("gradients ")) {
          bytes += bytes_of(instruction.inputs.front());
        }
      }
      return bytes;
    };
    EXPECT_EQ(2 * gradients_sent(halves), gradients_sent(numbers)) << "level " << zero;
    EXPECT_GT(gradients_sent(halves), 0);
  }
}

/// What the optimizer updates of a unit crosses the link once each way a window; with weights on
/// the host, each unit also once per use (embedding and head: once a micro-batch), and no update
/// returns.
TEST(Offload, SendsGradientsOutAndWeightsBack) {
  for (const auto& [offload, zero] :
       {std::pair{Offload::Optimizer, 0}, std::pair{Offload::Optimizer, 1},
        std::pair{Offload::Optimizer, 3}, std::pair{Offload::Parameters, 3},
        std::pair{Offload::Parameters, 0}}) {
    for (const DType precision : {DType::Float32, DType::BFloat16}) {
      CompileOptions options = options_of(2, 1, zero);
      options.precision = precision;
      options.parallel.offload = offload;
      const Compilation compilation(options);
      const Program program = compilation.training(1);
      const Ledger ledger = planned_ledger(program, Algorithm::Direct);
      const std::int64_t share = zero == 0 ? 1 : 2;
      std::int64_t elements = 0;
      std::int64_t uses = 0;
      for (const Unit& unit : compilation.state(1).units) {
        elements += unit.elements / share;
        const bool once = unit.name.find("embed") != std::string::npos ||
                          unit.name.find("head") != std::string::npos;
        uses += unit.elements / share * (once ? 1 : 2);
      }
      EXPECT_EQ(sent(ledger, CopyDirection::ToHost, "host"), 4 * elements);
      const std::int64_t back = offload == Offload::Optimizer ? elements : 2 * uses;
      const std::int64_t size = size_of(precision);
      EXPECT_EQ(sent(ledger, CopyDirection::ToDevice, "host"), size * back) << zero;
      const MemoryAccount memory = memory_account(program);
      EXPECT_EQ(memory.optimizer, 0);
      EXPECT_EQ(memory.parameters == 0, offload == Offload::Parameters);
      options.parallel.offload = Offload::None;
      const MemoryAccount without = memory_account(Compilation(options).training(1));
      EXPECT_LT(memory.peak, without.peak);
      // Optimizer state, a copy of the gradients it reads, and the weights it writes or keeps.
      const std::int64_t host_weights =
          precision == DType::BFloat16 || offload == Offload::Optimizer
              ? 4 + (precision == DType::BFloat16 ? 2 : 0)
              : 4;
      EXPECT_EQ(memory.host, (8 + 4 + host_weights) * elements);
    }
  }
}

/// Gathered parameters take the place of an earlier layer's, and so do raw gradients: twice the
/// layers need not even one layer more.
TEST(FullyShardedParameters, TakeTheMemoryOfTheUnitsInUse) {
  CompileOptions options = options_of(2, 1, 3);
  options.model.hidden = 128;
  options.model.feed_forward = 512;
  options.parallel.reduce_gradients = ReduceGradients::MicroBatch;
  std::int64_t layer = 0;
  const auto transient = [&](std::int64_t layers, int prefetch) {
    options.model.layers = layers;
    options.parallel.prefetch = prefetch;
    const Compilation compilation(options);
    layer = 4 * compilation.state(0).units.at(2).elements;
    std::int64_t persistent = 0;
    const Program program = compilation.training(0);
    for (const Buffer& buffer : program.buffers) {
      if (buffer.lane == Lane::Window && buffer.persistent) {
        persistent = std::max(persistent, buffer.offset + buffer.bytes);
      }
    }
    return program.window_bytes - persistent;
  };
  EXPECT_LT(transient(12, 1), transient(6, 1) + layer);
  EXPECT_LT(transient(12, 0) + layer / 2, transient(12, 1));
  EXPECT_LT(transient(12, 1) + layer / 2, transient(12, 3));
}

TEST(Overlap, GradientsAreReducedOnTheirOwnStreamWhileTheBackwardGoesOn) {
  const Program program = Compilation(options_of(2, 1, 1)).training(0);
  const Order order(program);
  std::size_t first_reduction = 0;
  std::size_t last_backward = 0;
  int reductions = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const auto* work = std::get_if<CollectiveWork>(&instruction.work);
    if (work != nullptr && work->kind == CollectiveKind::ReduceScatter) {
      EXPECT_EQ(program.streams[static_cast<std::size_t>(instruction.stream)], "communication");
      for (std::size_t writer = 0; writer < i; ++writer) {
        for (const Operand& output : program.instructions[writer].outputs) {
          if (output.buffer == instruction.inputs.front().buffer) {
            EXPECT_TRUE(
                order.before(static_cast<InstructionId>(writer), static_cast<InstructionId>(i)));
          }
        }
      }
      first_reduction = reductions++ == 0 ? i : first_reduction;
    }
    last_backward = instruction.phase == Phase::Backward ? i : last_backward;
  }
  EXPECT_LT(first_reduction, last_backward);
  EXPECT_EQ(reductions, 3 + 2 + 1);  // a layer each, embedding and head, the small unit
}

TEST(Buckets, HoldUnitsUntilTheyAreFull) {
  CompileOptions options = options_of(2, 1, 1);
  options.parallel.bucket_mib = 1000;
  const Ledger ledger = planned_ledger(Compilation(options).training(0), Algorithm::Direct);
  EXPECT_EQ(ledger.at({CollectiveKind::ReduceScatter, "dp"}).calls,
            2);  // everything, and the small unit
  EXPECT_EQ(ledger.at({CollectiveKind::AllGather, "dp"}).calls, 2);
}

TEST(Accumulation, WritesAGradientOnceAndAddsTheRest) {
  const Program program = Compilation(options_of(1, 1, 0)).training(0);
  std::map<std::pair<BufferId, std::int64_t>, std::vector<bool>> writes;
  for (const Instruction& instruction : program.instructions) {
    const auto* kernel = std::get_if<KernelWork>(&instruction.work);
    for (std::size_t i = 0; kernel != nullptr && i < instruction.outputs.size(); ++i) {
      const Operand& output = instruction.outputs[i];
      if (program.buffers[static_cast<std::size_t>(output.buffer)].category ==
          Category::Gradients) {
        writes[{output.buffer, output.offset}].push_back(kernel->accumulate[i]);
      }
    }
  }
  EXPECT_EQ(writes.size(),
            30U);  // 3 layers of 9 weights, embedding, head, norm: each its own place
  for (const auto& [place, adds] : writes) {
    EXPECT_EQ(adds, (std::vector<bool>{false, true}));
  }
}

/// Every element of every parameter has one owner.
TEST(Ownership, SumsToTheParameterCount) {
  for (const int dp : {1, 3}) {
    for (const int tp : {1, 2, 4}) {
      const Compilation compilation(options_of(dp, tp, 1));
      std::int64_t owned = 0;
      for (int rank = 0; rank < compilation.world(); ++rank) {
        const StatePlan state = compilation.state(rank);
        for (const OwnedPiece& piece : owned_pieces(state)) {
          owned += piece.elements.size();
        }
      }
      EXPECT_EQ(owned, parameter_count(compilation.options().model)) << dp << " x " << tp;
    }
  }
}

/// Flops of all ranks over those of one rank: 1, but for what tensor parallelism repeats (norms,
/// rope of replicated KV heads, embedding lookups).
TEST(Flops, OfAllRanksAreTheLogicalOnesForEveryProduct) {
  const auto flops_of = [](const CompileOptions& options, const std::string& op) {
    const Compilation compilation(options);
    double flops = 0;
    for (int rank = 0; rank < compilation.world(); ++rank) {
      for (const Instruction& instruction : compilation.training(rank).instructions) {
        const auto* kernel = std::get_if<KernelWork>(&instruction.work);
        flops += kernel != nullptr && kernel->op == op ? instruction.flops : 0;
      }
    }
    return flops;
  };
  CompileOptions one = options_of(1, 1, 0);
  one.micro_batch = 2;
  EXPECT_DOUBLE_EQ(flops_of(options_of(2, 2, 0), "einsum"), flops_of(one, "einsum"));
  for (const char* op : {"einsum", "attention", "attention_grad"}) {
    EXPECT_DOUBLE_EQ(flops_of(ring_of(3), op), flops_of(ring_of(1), op));
  }
}

TEST(Programs, OfAllRanksFitTogetherAndGoThroughText) {
  for (const bool sequence_parallel : {false, true}) {
    CompileOptions options = options_of(2, 2, 1);
    options.parallel.sequence_parallel = sequence_parallel;
    const Compilation compilation(options);
    std::vector<Program> programs;
    for (int rank = 0; rank < compilation.world(); ++rank) {
      programs.push_back(compilation.training(rank));
      EXPECT_EQ(program_from_text(to_text(programs.back())), programs.back());
    }
    verify(programs);
    const Simulation simulation = simulate(programs, Algorithm::Direct, {});
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const Ledger planned = planned_ledger(programs[rank], Algorithm::Direct);
      ASSERT_EQ(planned.size(), simulation.ledgers[rank].size());
      for (const auto& [key, entry] : planned) {
        EXPECT_EQ(entry.calls, simulation.ledgers[rank].at(key).calls);
        EXPECT_EQ(entry.sent_bytes, simulation.ledgers[rank].at(key).sent_bytes);
      }
    }
  }
}

TEST(Programs, OfEvaluationShareTheStateOfTraining) {
  const Compilation compilation(options_of(2, 2, 1));
  const Program training = compilation.training(1);
  const Program evaluation = compilation.evaluation(1);
  for (std::size_t i = 0; i < training.buffers.size() && training.buffers[i].persistent; ++i) {
    EXPECT_EQ(training.buffers[i], evaluation.buffers[i]);
  }
}

TEST(Freezing, LeavesAWeightWithoutGradientOrState) {
  CompileOptions options = options_of(2, 1, 0);
  const std::int64_t before = unit_bytes(Compilation(options).training(0), "gradients");
  options.freeze = {"*embed_tokens*"};
  const Program program = Compilation(options).training(0);
  EXPECT_EQ(unit_bytes(program, "gradients"), before - 64 * 32 * 4);
  options.freeze = {"no_such_weight"};
  EXPECT_THROW(Compilation{options}, ConfigError);
  options.freeze = {"*"};
  EXPECT_THROW(Compilation{options}, ConfigError);
}

TEST(Positions, BeyondWhatALlamaSaysOfItselfAreALineOfThePlan) {
  CompileOptions options = options_of(1, 1, 0);
  options.sequence = 64;
  EXPECT_TRUE(Compilation(options).warnings().empty());
  options.sequence = 65;
  const Compilation compilation(options);
  const std::vector<std::string> warnings = compilation.warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings.front().find("65 is more than max_position_embeddings = 64"),
            std::string::npos);
  EXPECT_EQ(compilation.training(0).notes.front(), warnings.front());
}

TEST(Patterns, MatchAsAShellDoes) {
  EXPECT_TRUE(matches("*norm*", "model.norm.weight"));
  EXPECT_TRUE(matches("layers.?.w", "layers.3.w"));
  EXPECT_FALSE(matches("layers.?.w", "layers.13.w"));
  EXPECT_FALSE(matches("norm", "model.norm"));
  EXPECT_TRUE(matches("*", ""));
}

}  // namespace
}  // namespace sw
