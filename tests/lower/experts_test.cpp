#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "graph/operator.hpp"
#include "lower/compile.hpp"
#include "program/ledger.hpp"
#include "tests/lower/plans.hpp"

namespace sw {
namespace {

using test::options_of;
using test::sent;
using test::unit_bytes;

/// Two of 8 experts a token.
CompileOptions mixtral_of(int dp, int ep) {
  CompileOptions options = options_of(dp, 1, 0);
  options.model.model_type = "mixtral";
  options.model.experts = 8;
  options.model.experts_per_token = 2;
  options.model.expert_feed_forward = 24;
  options.parallel.layout.ep = ep;
  return options;
}

/// With N tokens of a micro-batch on a rank: k·N slots, of which (n-1)/n go elsewhere if all
/// experts are chosen alike; rows of D and a gate there, rows of D back, and a gradient of each the
/// other way. Before it E counts to each of the others.
TEST(ExpertParallel, SendsSlotsThereAndBackAndTheirGradients) {
  for (const auto& [dp, cp, ep] : {std::array{2, 1, 2}, std::array{4, 1, 2}, std::array{4, 1, 4},
                                   std::array{1, 2, 2}, std::array{2, 2, 4}, std::array{1, 4, 2}}) {
    CompileOptions options = mixtral_of(dp, ep);
    options.parallel.layout.cp = cp;
    options.micro_batch = 2;
    const Compilation compilation(options);
    for (int rank = 0; rank < dp * cp; ++rank) {
      const Ledger ledger = planned_ledger(compilation.training(rank), Algorithm::Direct);
      const std::int64_t slots = std::int64_t{2} * 2 * 8 / cp;
      const std::int64_t rows = slots / ep * (ep - 1) * 3 * 2;  // 3 layers, 2 micro-batches
      EXPECT_EQ(sent(ledger, CollectiveKind::AllToAll, "ep"), rows * (4 * 32 + 2) * 4);
      EXPECT_EQ(ledger.at({CollectiveKind::AllToAll, "ep"}).calls, 3 * 2 * 6);
      EXPECT_EQ(sent(ledger, CollectiveKind::AllGather, "ep"), 3 * 2 * (ep - 1) * 8 * 4);
    }
  }
}

/// Of level 1, gradients and weights of experts: over the ranks that have the same, and over none
/// where all have others. The rest is reduced over all of dp.
TEST(ExpertParallel, ReducesExpertsOverTheRanksThatHaveTheSame) {
  const auto ledger_of = [](int dp, int ep) {
    CompileOptions options = mixtral_of(dp, ep);
    options.parallel.zero = 1;
    options.model.expert_feed_forward = 32;  // no padding
    return planned_ledger(Compilation(options).training(0), Algorithm::Direct);
  };
  const std::int64_t experts = 3 * 3 * 8 * 32 * 32 * 4;
  const Ledger pairs = ledger_of(4, 2);
  EXPECT_EQ(sent(pairs, CollectiveKind::ReduceScatter, "dp_out"), experts / 2 / 2);
  EXPECT_EQ(sent(pairs, CollectiveKind::AllGather, "dp_out"), experts / 2 / 2);
  const Ledger apart = ledger_of(4, 4);
  const Ledger whole = ledger_of(4, 1);
  EXPECT_EQ(sent(apart, CollectiveKind::ReduceScatter, "dp"),
            sent(pairs, CollectiveKind::ReduceScatter, "dp"));
  EXPECT_EQ(sent(whole, CollectiveKind::ReduceScatter, "dp") -
                sent(apart, CollectiveKind::ReduceScatter, "dp"),
            experts / 4 * 3);
  EXPECT_EQ(apart.count({CollectiveKind::ReduceScatter, "dp_out"}), 0U);
}

/// What of a zero group has the same experts shares them out, and all groups keep the same. With U
/// bytes on a rank, s of its zero group and g groups that have them: (s-1)/s·U scattered, and
/// gathered once (level 3: before each use); 2(g-1)/g·U/s added up once a window.
TEST(ExpertParallel, SharesStateOutInsideAZeroGroup) {
  struct Case {
    int dp, cp, ep, zero_group;
    const char *dense, *dense_groups, *experts, *expert_groups;
  };
  for (const Case& c : {Case{8, 1, 2, 4, "dp_mid+dp_in", "dp_out", "dp_mid", "dp_out"},
                        Case{8, 1, 4, 2, "dp_in", "dp_out+dp_mid", "none", "dp_out"},
                        Case{4, 1, 2, 2, "dp_in", "dp_out", "none", "dp_out"},
                        Case{2, 4, 2, 4, "cp", "dp", "cp_out", "dp"},
                        Case{2, 4, 4, 2, "cp_in", "dp+cp_out", "none", "dp"},
                        Case{1, 4, 2, 2, "cp_in", "cp_out", "none", "cp_out"}}) {
    for (const int zero : {1, 2, 3}) {
      CompileOptions options = mixtral_of(c.dp, c.ep);
      options.parallel.layout.cp = c.cp;
      options.parallel.zero = zero;
      options.parallel.zero_group = c.zero_group;
      options.parallel.reduce_gradients =
          zero == 1 ? ReduceGradients::Window : ReduceGradients::MicroBatch;
      options.model.expert_feed_forward = 32;
      SCOPED_TRACE(
          fmt::format("dp {} cp {} ep {} group {} zero {}", c.dp, c.cp, c.ep, c.zero_group, zero));
      const std::int64_t s = c.zero_group;
      const std::int64_t g = c.dp * c.cp / c.zero_group;
      const std::int64_t es = std::max(1, c.zero_group / c.ep);
      const std::int64_t eg = c.dp * c.cp / c.ep / es;
      // Units in blocks of 1,024: of a layer, embedding and head, norms and routers.
      const auto padded = [&](std::int64_t blocks) { return (blocks + s - 1) / s * s * 4096; };
      const std::int64_t dense = 3 * padded(3) + 2 * padded(2) + padded(7 + 3);
      const std::int64_t experts = 3 * 3 * 8 / c.ep * 32 * 32 * 4;
      const std::int64_t reduced = zero == 1 ? 1 : 2;   // micro-batches
      const std::int64_t gathered = zero == 3 ? 4 : 1;  // of each, forward and backward

      const Program program = Compilation(options).training(0);
      const Ledger ledger = planned_ledger(program, Algorithm::Direct);
      EXPECT_EQ(sent(ledger, CollectiveKind::ReduceScatter, c.dense),
                dense / s * (s - 1) * reduced);
      EXPECT_EQ(sent(ledger, CollectiveKind::ReduceScatter, c.experts),
                experts / es * (es - 1) * reduced);
      EXPECT_EQ(sent(ledger, CollectiveKind::AllGather, c.experts),
                experts / es * (es - 1) * gathered);
      std::map<std::string, std::int64_t> added_up;
      added_up[c.dense_groups] += 2 * (g - 1) * dense / s / g;
      added_up[c.expert_groups] += 2 * (eg - 1) * experts / es / eg;
      for (const auto& [axis, bytes] : added_up) {
        EXPECT_EQ(sent(ledger, CollectiveKind::AllReduce, axis.c_str()), bytes) << axis;
      }
      const std::int64_t slices = dense / s + experts / es;
      EXPECT_EQ(unit_bytes(program, "moment0"), slices);
      EXPECT_EQ(unit_bytes(program, "gradients"), zero == 1 ? dense + experts : slices);
      EXPECT_EQ(unit_bytes(program, "weights"), zero < 3 ? dense + experts : slices);
    }
  }
}

/// Rows that there is room for, in each round; and in how many rounds the most would come.
TEST(ExpertBuffer, IsRoomForItsMultipleOfAnEvenLoad) {
  for (const auto& [buffer, room, rounds] :
       {std::tuple{1.0, 16, 4}, std::tuple{1.5, 24, 3}, std::tuple{2.0, 32, 2},
        std::tuple{4.0, 64, 1}, std::tuple{9.0, 64, 1}}) {
    CompileOptions options = mixtral_of(4, 4);
    options.parallel.expert_buffer = buffer;
    const Program program = Compilation(options).training(0);
    int most = 0;
    for (const Instruction& instruction : program.instructions) {
      const auto* work = std::get_if<CollectiveWork>(&instruction.work);
      most = std::max(most, instruction.round);
      if (work != nullptr && work->routing == Routing::ToExperts) {
        EXPECT_EQ(instruction.outputs.front().shape.front(), room);
      }
    }
    EXPECT_EQ(most + 1, rounds) << buffer;
  }
}

/// What a further round would cost is in no plan; the forward and the backward of a round that
/// comes have as many products as those of the first, and the backward's make the forward's again.
TEST(ExpertBuffer, PlansOnlyTheFirstRound) {
  CompileOptions one = mixtral_of(2, 2);
  CompileOptions two = one;
  two.parallel.expert_buffer = 1;
  const Program a = Compilation(one).training(0);
  const Program b = Compilation(two).training(0);
  EXPECT_EQ(planned_ledger(a, Algorithm::Direct), planned_ledger(b, Algorithm::Direct));
  const auto flops = [](const Program& program) {
    double sum = 0;
    for (const Instruction& instruction : program.instructions) {
      sum += instruction.flops;
    }
    return sum;
  };
  EXPECT_EQ(flops(a), flops(b));
  EXPECT_LT(memory_account(b).activations, memory_account(a).activations);
  const auto products = [](const Program& program, int round) {
    int count = 0;
    for (const Instruction& instruction : program.instructions) {
      const auto* kernel = std::get_if<KernelWork>(&instruction.work);
      count += kernel != nullptr && kernel->op.starts_with("expert_product") &&
               instruction.round == round;
    }
    return count;
  };
  EXPECT_EQ(products(b, 0), products(a, 0));
  EXPECT_EQ(products(b, 0), 2 * 3 * 9);
  EXPECT_EQ(products(b, 1), 2 * 3 * (9 + 2));
}

/// A further round of the backward sends tokens that the backward has made again, or gathered again
/// over tp, so that those of the forward do not stay for it.
TEST(ExpertBuffer, KeepsNoTokensForTheBackwardsRounds) {
  for (const auto& [tp, recompute] : {std::pair{2, Recompute::None},
                                      {2, Recompute::Selective},
                                      {2, Recompute::Full},
                                      {1, Recompute::Selective},
                                      {1, Recompute::Full}}) {
    SCOPED_TRACE(fmt::format("tp {} recompute {}", tp, static_cast<int>(recompute)));
    CompileOptions options = mixtral_of(2, 2);
    options.parallel.layout.tp = tp;
    options.parallel.sequence_parallel = tp > 1;
    options.parallel.gather_before_dispatch = tp > 1;
    options.parallel.recompute = recompute;
    const Program all_at_once = Compilation(options).training(0);
    options.parallel.expert_buffer = 1;
    const Program program = Compilation(options).training(0);
    EXPECT_LT(memory_account(program).peak, memory_account(all_at_once).peak);
    std::set<BufferId> of_forward;
    int packed = 0;
    for (const Instruction& instruction : program.instructions) {
      const auto* work = std::get_if<SlotWork>(&instruction.work);
      const bool rows = work != nullptr && work->kind == SlotKind::Pack &&
                        instruction.outputs.front().shape.back() == options.model.hidden;
      if (rows && instruction.phase == Phase::Backward && instruction.round > 0) {
        ++packed;
        EXPECT_FALSE(of_forward.contains(instruction.inputs.front().buffer)) << instruction.name;
      }
      for (const Operand& output : instruction.outputs) {
        if (instruction.phase == Phase::Forward) {
          of_forward.insert(output.buffer);
        }
      }
    }
    EXPECT_GE(packed, 3 * 2 * 2);  // 3 layers, 2 micro-batches: tokens and gradients
  }
}

TEST(ExpertBuffer, OfAHalvedBackwardHasRoomForAll) {
  CompileOptions options = mixtral_of(2, 2);
  options.parallel.layout.pp = 2;
  options.parallel.expert_buffer = 1;
  options.parallel.pipeline = PipelineSchedule::ZeroBubble;
  const Program program = Compilation(options).training(0);
  for (const Instruction& instruction : program.instructions) {
    EXPECT_EQ(instruction.round, 0);
  }
  EXPECT_TRUE(std::any_of(program.notes.begin(), program.notes.end(), [](const std::string& note) {
    return note.find("keeps room for all slots") != std::string::npos;
  }));
}

/// What a token is multiplied with: the products of the graph, of which each takes two operations a
/// weight in the forward and four in the backward. The table and the norms, which multiply nothing,
/// count by custom.
TEST(ModelFlops, OfExpertsCountTheChosenOnes) {
  CompileOptions options = options_of(1, 1, 0);
  options.model.model_type = "mixtral";
  options.model.experts = 5;
  options.model.experts_per_token = 2;
  options.model.expert_feed_forward = 24;
  const Compilation compilation(options);
  const Graph& graph = compilation.model().graph;
  double products = 0;
  for (const Op& op : graph.ops()) {
    const std::string& name = op.definition->name;
    if (op.direction == Direction::Forward && (name == "einsum" || name == "expert_product")) {
      std::vector<Shape> inputs;
      for (const ValueId id : op.inputs) {
        inputs.push_back(graph.value(id).shape);
      }
      products +=
          op.definition->flops(op.parameters, inputs, {graph.value(op.outputs.front()).shape});
    }
  }
  const double tokens = 8 * 2;  // of a window
  const double unmultiplied = 64 * 32 + (2 * 3 + 1) * 32;
  const double attention = 12.0 * 3 * 32 * 8 * tokens;
  EXPECT_EQ(compilation.model_flops_per_window(),
            2 * 3 * products + 6 * unmultiplied * tokens + attention);
}

TEST(Experts, InBfloat16AreALineOfThePlan) {
  CompileOptions options = options_of(1, 1, 0);
  options.model.model_type = "mixtral";
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  options.model.expert_feed_forward = 24;
  const auto said = [](const CompileOptions& of) {
    const std::vector<std::string> notes = Compilation(of).training(0).notes;
    return std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.starts_with("experts in bfloat16");
    });
  };
  EXPECT_FALSE(said(options));
  options.precision = DType::BFloat16;
  EXPECT_TRUE(said(options));
}

}  // namespace
}  // namespace sw
