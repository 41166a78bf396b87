#include "tests/train/layouts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <regex>
#include <string>
#include <variant>
#include <vector>

#include "tests/soak.hpp"

namespace sw {
namespace {

using test::corpus_of;
using test::described;
using test::drawn_layout;
using test::Job;
using test::job_of;
using test::kSynchronous;
using test::options_of;
using test::pipeline_of;
using test::run;
using test::tiny_gpt2;
using test::tiny_llama;
using test::tiny_mixtral;
using test::tiny_qwen_moe;

/// Every valid token has `experts_per_token` slots in each layer with experts.
void has_all_slots(const SideRecord& side, const ModelConfig& model) {
  for (const StepRecord& step : side.steps) {
    const auto layers = model.experts == 0 ? 0 : model.layers - std::ssize(model.dense_layers);
    ASSERT_EQ(std::ssize(step.expert_load), layers * model.experts);
    for (auto row = step.expert_load.begin(); row != step.expert_load.end(); row += model.experts) {
      EXPECT_EQ(std::accumulate(row, row + model.experts, std::int64_t{0}),
                step.valid_tokens * model.experts_per_token);
    }
  }
}

/// Flops of matrix products and attention on all ranks, by operator. What tp is known to repeat is
/// left out: keys and values of heads that it does not divide, routers, gates of shared experts.
std::map<std::string, double> product_flops(const std::vector<Program>& programs,
                                            bool repeats_keys) {
  const std::regex repeated(std::string("router|shared_score") +
                            (repeats_keys ? "|\\.(key|value)\\b" : ""));
  std::map<std::string, double> flops;
  for (const Program& program : programs) {
    for (const Instruction& instruction : program.instructions) {
      const auto* kernel = std::get_if<KernelWork>(&instruction.work);
      if (kernel != nullptr && !std::regex_search(instruction.name, repeated) &&
          (kernel->op == "einsum" || kernel->op.starts_with("attention") ||
           kernel->op.starts_with("expert_product"))) {
        flops[kernel->op] += instruction.flops;
      }
    }
  }
  return flops;
}

/// No layout computes more or less than one rank, which makes again what the layout makes again.
void computes_what_one_rank_does(const std::vector<Program>& programs,
                                 const CompileOptions& options) {
  CompileOptions one = one_rank(options);
  one.parallel.recompute = options.parallel.recompute;
  const bool repeats_keys = options.model.kv_heads % options.parallel.layout.tp != 0;
  EXPECT_EQ(product_flops(programs, repeats_keys),
            product_flops({Compilation(one).training(0)}, repeats_keys));
}

/// Held to one rank with the same global batch and number of micro-batches.
void equals_one_rank(const CompileOptions& options) {
  const Corpus corpus = corpus_of(options.sequence);
  const Job job = job_of(options, corpus, 1);
  const auto start = [](Session& session) { session.initialize(5); };
  const Compilation layout(options);
  const Compilation reference(one_rank(options));
  std::vector<Program> programs;
  for (int rank = 0; rank < layout.world(); ++rank) {
    programs.push_back(layout.training(rank));
  }
  verify(programs);
  computes_what_one_rank_does(programs, options);
  const SideRecord a = run_side(layout, corpus, job.windows, job.settings, start);
  const SideRecord b = run_side(reference, corpus, job.windows, job.settings, start);
  const Comparison result = compare(a, b, options.optimizer, job.settings, verify_bound(options));
  EXPECT_TRUE(result.equal) << "gradient " << result.worst_gradient.name << " "
                            << result.worst_gradient.relative_error << ", weight "
                            << result.worst_weight.name << " " << result.worst_weight.relative_error
                            << ", loss " << result.loss[0] << " " << result.loss[1];
  has_all_slots(b, options.model);
  EXPECT_EQ(a.steps.front().expert_load, b.steps.front().expert_load);
  EXPECT_TRUE(a.replicas_equal);
  EXPECT_TRUE(a.account_equal);
  EXPECT_TRUE(b.account_equal);
  EXPECT_EQ(a.owned_elements, parameter_count(options.model));
  EXPECT_EQ(b.owned_elements, parameter_count(options.model));
}

TEST(Layouts, EqualOneRankOverDataTensorSequenceAndZero) {
  for (const int dp : {1, 2, 3, 4}) {
    for (const int tp : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        if (dp * tp > 8 || dp * tp == 1 || (tp == 1 && sequence_parallel)) {
          continue;
        }
        CompileOptions options = options_of(tiny_llama(8, dp == 2 ? 2 : 4, dp == 3), dp, tp);
        options.parallel.sequence_parallel = sequence_parallel;
        options.parallel.zero = (dp + tp + (sequence_parallel ? 1 : 0)) % 4;
        options.parallel.reduce_gradients =
            tp == 2 ? ReduceGradients::MicroBatch : ReduceGradients::Window;
        options.accumulation = dp == 2 ? 3 : 1;
        SCOPED_TRACE(fmt::format("dp {} tp {} sequence {} zero {}", dp, tp, sequence_parallel,
                                 options.parallel.zero));
        equals_one_rank(options);
      }
    }
  }
}

/// The default documents are isolated, so positions and documents cross the cut.
TEST(Layouts, OfContextParallelEqualOneRank) {
  for (const auto context :
       {ContextAlgorithm::Gather, ContextAlgorithm::Ring, ContextAlgorithm::AllToAll}) {
    const bool ring = context == ContextAlgorithm::Ring;
    const bool exchanges = context == ContextAlgorithm::AllToAll;
    for (const auto& [dp, cp, tp, pp, zero] :
         {std::array{1, 2, 1, 1, 0}, std::array{1, 4, 1, 1, 3}, std::array{2, 2, 1, 1, 1},
          std::array{1, 3, 2, 1, 2}, std::array{1, 2, 2, 2, 1}}) {
      CompileOptions options = options_of(
          exchanges ? tiny_llama(12, 12, zero == 1) : tiny_llama(4, ring ? 1 : 2, zero == 1), dp,
          tp);
      options.parallel.layout.cp = cp;
      options.parallel.layout.pp = pp;
      options.parallel.context = context;
      options.parallel.sequence_parallel = tp > 1 && !exchanges;
      options.parallel.zero = zero;
      options.parallel.recompute = zero == 2 ? Recompute::Full : Recompute::None;
      options.parallel.pipeline =
          ring ? PipelineSchedule::ZeroBubble : PipelineSchedule::OneForwardOneBackward;
      options.precision = ring && zero == 3 ? DType::BFloat16 : DType::Float32;
      SCOPED_TRACE(fmt::format("context {} dp {} cp {} tp {} pp {} zero {}",
                               static_cast<int>(context), dp, cp, tp, pp, zero));
      equals_one_rank(options);
    }
    CompileOptions gpt2 = options_of(tiny_gpt2(), 1, 1);  // with dropout: cut in order
    gpt2.parallel.layout.cp = ring ? 3 : 2;
    gpt2.parallel.context = context;
    SCOPED_TRACE(fmt::format("context {} with dropout", static_cast<int>(context)));
    equals_one_rank(gpt2);
  }
}

TEST(Layouts, ThatKeepGatheredCopiesEqualThoseThatGatherAgainAndSendLess) {
  CompileOptions options = options_of(tiny_llama(4, 2), 2, 2);
  options.parallel.sequence_parallel = true;
  const SideRecord again = run(options, 1);
  const auto gathers = [](const CompileOptions& of) {
    return planned_ledger(Compilation(of).training(0), Algorithm::Direct)
        .at({CollectiveKind::AllGather, "tp"})
        .calls;
  };
  const std::int64_t calls = gathers(options);
  options.parallel.keep_gathered = true;
  EXPECT_LT(gathers(options), calls);
  const SideRecord kept = run(options, 1);
  EXPECT_TRUE(kept.account_equal);
  EXPECT_EQ(again.steps[0].loss, kept.steps[0].loss);
  EXPECT_TRUE(again.steps[0].gradients == kept.steps[0].gradients);
}

TEST(Layouts, OfGpt2WithDropoutEqualOneRank) {
  for (const bool sequence_parallel : {false, true}) {
    CompileOptions options = options_of(tiny_gpt2(), 2, 2);
    options.parallel.sequence_parallel = sequence_parallel;
    options.parallel.zero = 1;
    SCOPED_TRACE(sequence_parallel);
    equals_one_rank(options);
  }
}

/// Of routers that know nothing yet all probabilities are nearly 1/E, and then the shares, which
/// add up to k, do not matter: coefficient times k. It is not in the loss, which is the same to the
/// bit as long as the weights are.
TEST(BalanceLoss, IsReportedBesideTheLossAndMovesTheRouter) {
  CompileOptions options = options_of(tiny_qwen_moe(), 2, 1);
  options.model.layers = 3;  // of which the second has no experts
  options.parallel.layout.pp = 3;
  const double coefficient = options.model.balance_loss;
  const SideRecord with = run(options, 2);
  options.model.balance_loss = 0;
  const SideRecord without = run(options, 2);
  EXPECT_NEAR(with.steps[0].balance_loss, 2 * coefficient, 0.05 * coefficient);
  EXPECT_EQ(without.steps[0].balance_loss, 0);
  EXPECT_EQ(with.steps[0].loss, without.steps[0].loss);
  EXPECT_NE(with.steps[1].loss, without.steps[1].loss);
  const auto router = [](const SideRecord& side) {
    return side.steps[0].gradients.at("model.layers.2.mlp.gate.weight");
  };
  EXPECT_FALSE(router(with) == router(without));
}

/// Of routers that know nothing yet all logits are nearly 0: log(E) squared.
TEST(ZLoss, IsReportedBesideTheLossAndMovesTheRouter) {
  CompileOptions options = options_of(tiny_qwen_moe(), 2, 1);
  const double coefficient = options.model.z_loss;
  const SideRecord with = run(options, 2);
  options.model.z_loss = 0;
  const SideRecord without = run(options, 2);
  const double z = std::log(static_cast<double>(options.model.experts));
  EXPECT_NEAR(with.steps[0].z_loss, coefficient * z * z, 0.05 * coefficient);
  EXPECT_EQ(without.steps[0].z_loss, 0);
  EXPECT_EQ(with.steps[0].loss, without.steps[0].loss);
  EXPECT_NE(with.steps[1].loss, without.steps[1].loss);
}

/// In every layout and every split of the window: loads are whole numbers.
TEST(BalanceBias, MovesByItsStepTowardsTheMeanAfterEachUpdate) {
  CompileOptions options = options_of(tiny_mixtral(4, 2), 2, 1);
  options.parallel.layout.pp = 2;
  options.parallel.zero = 3;
  const SideRecord side = run(options, 6);
  const auto rate = static_cast<float>(options.model.balance_bias);
  const std::int64_t experts = options.model.experts;
  for (std::int64_t layer = 0; layer < options.model.layers; ++layer) {
    std::vector<float> bias(static_cast<std::size_t>(experts), 0.0F);
    for (const StepRecord& step : side.steps) {
      const auto row = step.expert_load.begin() + layer * experts;
      for (std::int64_t e = 0; e < experts; ++e) {
        // A valid token has 2 slots, and an expert of 4 by the mean half a slot of each.
        const std::int64_t missing = step.valid_tokens - 2 * row[e];
        bias[static_cast<std::size_t>(e)] += missing > 0 ? rate : missing < 0 ? -rate : 0.0F;
      }
      EXPECT_EQ(step.weights.at(fmt::format(
                    "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias", layer)),
                bias);
    }
  }
  options.model.balance_bias = 0;
  EXPECT_NE(run(options, 6).steps.back().expert_load, side.steps.back().expert_load);
}

/// Among them more tp ranks than KV heads, and expert layers beside layers without.
TEST(Layouts, OfExpertsEqualOneRank) {
  for (const auto& [dp, cp, tp, pp, zero] :
       {std::array{2, 1, 1, 1, 0}, std::array{1, 1, 2, 1, 1}, std::array{1, 1, 4, 1, 0},
        std::array{2, 1, 2, 1, 3}, std::array{1, 2, 1, 1, 1}, std::array{1, 2, 2, 2, 1},
        std::array{3, 1, 1, 2, 2}}) {
    for (const bool qwen : {false, true}) {
      CompileOptions options = options_of(qwen ? tiny_qwen_moe() : tiny_mixtral(4, 2), dp, tp);
      ParallelOptions& parallel = options.parallel;
      parallel.layout.cp = cp;
      parallel.layout.pp = pp;
      parallel.zero = zero;
      parallel.sequence_parallel = tp > 1 && (qwen || zero == 3);
      parallel.recompute = pp == 1 ? Recompute::None : Recompute::Selective;
      parallel.pipeline = PipelineSchedule::OneForwardOneBackward;
      parallel.offload = zero == 2 ? Offload::Optimizer : Offload::None;
      SCOPED_TRACE(
          fmt::format("qwen {} dp {} cp {} tp {} pp {} zero {}", qwen, dp, cp, tp, pp, zero));
      equals_one_rank(options);
    }
  }
}

/// Of the data group one, some and all ranks share the experts; among them the levels of ZeRO, of
/// which experts alone on their rank have nothing to share out.
TEST(Layouts, OfExpertsOnRanksOfTheirOwnEqualOneRank) {
  struct Case {
    int pp, dp, cp, tp, ep, zero;
  };
  for (const Case& c : {Case{1, 2, 1, 1, 2, 0}, Case{1, 4, 1, 1, 2, 1}, Case{1, 4, 1, 1, 2, 3},
                        Case{1, 2, 2, 1, 2, 2}, Case{1, 2, 2, 1, 4, 3}, Case{1, 1, 2, 2, 2, 1},
                        Case{2, 2, 1, 1, 2, 0}, Case{2, 2, 1, 2, 2, 3}}) {
    for (const bool qwen : {false, true}) {
      CompileOptions options = options_of(qwen ? tiny_qwen_moe() : tiny_mixtral(4, 2), c.dp, c.tp);
      options.model.experts = 8;
      ParallelOptions& parallel = options.parallel;
      parallel.layout.pp = c.pp;
      parallel.layout.cp = c.cp;
      parallel.layout.ep = c.ep;
      parallel.zero = c.zero;
      parallel.expert_buffer = qwen ? 1 : 2;  // further rounds, and for ep = 2 never any
      const bool every = c.zero >= 2 || qwen;
      parallel.reduce_gradients = every ? ReduceGradients::MicroBatch : ReduceGradients::Window;
      options.accumulation = qwen ? 4 : 2;
      parallel.sequence_parallel = c.tp > 1 && qwen;
      parallel.recompute = c.pp == 1 ? Recompute::None
                           : qwen    ? Recompute::Selective
                                     : Recompute::Full;
      parallel.pipeline = PipelineSchedule::OneForwardOneBackward;
      parallel.offload = c.zero == 2 ? Offload::Optimizer : Offload::None;
      SCOPED_TRACE(fmt::format("qwen {} pp {} dp {} cp {} tp {} ep {} zero {}", qwen, c.pp, c.dp,
                               c.cp, c.tp, c.ep, c.zero));
      equals_one_rank(options);
    }
  }
}

/// Experts and slices of state each on neighbours of their own: one inside the other either way, on
/// parts of cp and of dp.
TEST(Layouts, OfExpertsAndZeroGroupsEqualOneRank) {
  struct Case {
    int dp, cp, tp, ep, zero_group, zero;
    ContextAlgorithm context;
  };
  const auto ring = ContextAlgorithm::Ring;
  const auto gather = ContextAlgorithm::Gather;
  const auto exchange = ContextAlgorithm::AllToAll;
  for (const Case& c :
       {Case{4, 1, 1, 2, 2, 1, ring}, Case{8, 1, 1, 2, 4, 3, ring}, Case{8, 1, 1, 4, 2, 2, ring},
        Case{4, 1, 2, 4, 2, 3, ring}, Case{1, 4, 1, 2, 0, 0, ring}, Case{1, 4, 1, 2, 0, 1, gather},
        Case{1, 4, 1, 2, 2, 3, exchange}, Case{2, 4, 1, 2, 4, 2, gather},
        Case{2, 4, 1, 4, 2, 3, ring}, Case{1, 4, 2, 2, 2, 1, exchange},
        Case{1, 4, 2, 2, 0, 2, ring}, Case{1, 8, 1, 4, 2, 3, ring}}) {
    CompileOptions options = options_of(tiny_mixtral(8, 8), c.dp, c.tp);
    options.model.experts = 8;
    options.model.balance_loss = 0.3;
    options.sequence = 32;
    options.micro_batch = 1;
    options.accumulation = 3;
    ParallelOptions& parallel = options.parallel;
    parallel.layout.cp = c.cp;
    parallel.layout.ep = c.ep;
    parallel.zero = c.zero;
    parallel.zero_group = c.zero_group;
    parallel.context = c.context;
    parallel.reduce_gradients = c.zero >= 2 ? ReduceGradients::MicroBatch : ReduceGradients::Window;
    parallel.sequence_parallel = c.tp > 1 && c.context != exchange;
    parallel.expert_buffer = c.zero == 3 ? 1 : 2;
    parallel.offload = c.zero == 1 ? Offload::Optimizer : Offload::None;
    SCOPED_TRACE(fmt::format("dp {} cp {} tp {} ep {} group {} zero {} context {}", c.dp, c.cp,
                             c.tp, c.ep, c.zero_group, c.zero, static_cast<int>(c.context)));
    equals_one_rank(options);
  }
}

/// Nothing comes back from the first layer's experts, which are all that is trained.
TEST(Layouts, OfFrozenModelsWithTrainedExpertsEqualOneRank) {
  for (const double buffer : {1.0, 4.0}) {
    CompileOptions options = options_of(tiny_mixtral(4, 2), 4, 1);
    options.model.balance_loss = options.model.z_loss = options.model.balance_bias = 0;
    options.parallel.layout.ep = 4;
    options.parallel.expert_buffer = buffer;
    options.freeze = {"*embed*", "*self_attn*", "*norm*", "*gate.weight", "lm_head*"};
    const SideRecord layout = run(options, 1);
    const SideRecord reference = run(one_rank(options), 1);
    const Comparison result =
        compare(layout, reference, options.optimizer,
                job_of(options, corpus_of(options.sequence), 1).settings, verify_bound(options));
    EXPECT_TRUE(result.equal) << buffer << " " << result.worst_gradient.name << " "
                              << result.worst_gradient.relative_error;
    EXPECT_TRUE(layout.account_equal);
  }
}

/// What a rank drops depends on its tokens and not on where the experts are.
TEST(Capacity, DropsTheSameSlotsWhereverTheExpertsAre) {
  CompileOptions options = options_of(tiny_mixtral(4, 2), 4, 1);
  options.model.expert_capacity = 0.75;
  const SideRecord whole = run(options, 2);
  std::int64_t taken = 0;
  for (const std::int64_t slots : whole.steps[0].expert_load) {
    taken += slots;
  }
  EXPECT_LT(taken, whole.steps[0].valid_tokens * 2 * options.model.layers * 3 / 4 + 1);
  EXPECT_GT(taken, 0);
  const Job job = job_of(options, corpus_of(options.sequence), 2);
  for (const int ep : {2, 4}) {
    options.parallel.layout.ep = ep;
    options.parallel.expert_buffer = 1;
    const SideRecord shared = run(options, 2);
    const Comparison result =
        compare(shared, whole, options.optimizer, job.settings, verify_bound(options));
    EXPECT_TRUE(result.equal) << result.worst_gradient.name << " "
                              << result.worst_gradient.relative_error;
    EXPECT_TRUE(shared.account_equal);
  }
  options.model.expert_capacity = 100;
  const SideRecord all = run(options, 1);
  options.model.expert_capacity = 0;
  EXPECT_EQ(all.steps[0].loss, run(options, 1).steps[0].loss);
}

/// Where tp cuts the sequence, a token travels to its experts' weights once, not once an expert:
/// the bytes are those of a layer without experts.
TEST(Layouts, OfExpertsSendWhatDenseOnesSend) {
  for (const bool sequence_parallel : {false, true}) {
    CompileOptions dense = options_of(tiny_llama(4, 2), 1, 2);
    dense.parallel.sequence_parallel = sequence_parallel;
    CompileOptions experts = dense;
    experts.model = tiny_mixtral(4, 2);
    const auto sent = [](const CompileOptions& options, CollectiveKind kind) {
      const Ledger ledger = planned_ledger(Compilation(options).training(0), Algorithm::Direct);
      const auto found = ledger.find({kind, "tp"});
      return found == ledger.end() ? 0 : found->second.sent_bytes;
    };
    SCOPED_TRACE(sequence_parallel);
    EXPECT_EQ(sent(experts, CollectiveKind::AllGather), sent(dense, CollectiveKind::AllGather));
    EXPECT_EQ(sent(experts, CollectiveKind::ReduceScatter),
              sent(dense, CollectiveKind::ReduceScatter));
  }
}

TEST(Layouts, InBfloat16EqualOneRankWithinItsBound) {
  CompileOptions options = options_of(tiny_llama(4, 2), 2, 2);
  options.precision = DType::BFloat16;
  options.parallel.sequence_parallel = true;
  options.parallel.zero = 1;
  equals_one_rank(options);
}

/// Levels, both ways to reduce, parts of the data group, a tied weight on two stages.
TEST(Layouts, WithBfloat16GradientsEqualOneRankWithinItsBound) {
  for (const auto& [pp, dp, tp, zero, group] :
       {std::array{1, 2, 2, 1, 0}, std::array{1, 4, 1, 3, 2}, std::array{2, 2, 1, 2, 0}}) {
    for (const DType precision : {DType::Float32, DType::BFloat16}) {
      CompileOptions options = options_of(tiny_llama(4, 2, pp > 1), dp, tp);
      options.precision = precision;
      options.gradient_precision = DType::BFloat16;
      options.parallel.layout.pp = pp;
      options.parallel.zero = zero;
      options.parallel.zero_group = group;
      options.parallel.reduce_gradients =
          zero == 1 ? ReduceGradients::Window : ReduceGradients::MicroBatch;
      options.accumulation = 3;
      SCOPED_TRACE(
          fmt::format("pp {} dp {} tp {} zero {} {}", pp, dp, tp, zero, to_text(precision)));
      equals_one_rank(options);
    }
  }
}

TEST(Layouts, OfPipelinesEqualOneRank) {
  for (const PipelineSchedule schedule : kSynchronous) {
    for (const bool tied : {false, true}) {
      const bool interleaved = schedule == PipelineSchedule::Interleaved;
      const int zero = (static_cast<int>(schedule) + (tied ? 2 : 0)) % 4;
      CompileOptions options = pipeline_of(interleaved ? 2 : 3, schedule, tied);
      options.model.layers = 7;
      options.parallel.virtual_stages = interleaved ? 3 : 1;
      options.parallel.layout.dp = tied ? 2 : 1;
      options.parallel.layout.tp = zero == 1 || interleaved ? 1 : 2;
      options.parallel.sequence_parallel = zero == 3;
      options.parallel.zero = zero;
      options.parallel.recompute = tied ? Recompute::Full : Recompute::Selective;
      options.accumulation = interleaved ? 4 : 5;
      SCOPED_TRACE(
          fmt::format("schedule {} tied {} zero {}", static_cast<int>(schedule), tied, zero));
      equals_one_rank(options);
    }
  }
}

/// Of a V the first and the last segment are on one stage, which makes the gradient of the tied
/// weight by the head early, and by the embedding late: micro-batches come in between.
TEST(Layouts, OfPipelinesThatReduceEveryMicroBatchEqualOneRank) {
  for (const PipelineSchedule schedule : kSynchronous) {
    CompileOptions options = pipeline_of(2, schedule, true);
    options.parallel.virtual_stages = schedule == PipelineSchedule::Interleaved ? 2 : 1;
    options.parallel.layout.dp = 2;
    options.parallel.reduce_gradients = ReduceGradients::MicroBatch;
    for (const int zero : {0, 2}) {
      options.parallel.zero = zero;
      SCOPED_TRACE(fmt::format("schedule {} zero {}", static_cast<int>(schedule), zero));
      equals_one_rank(options);
    }
  }
}

/// Sliced in pairs, whose sums are added: another order of additions, so within the bound only.
TEST(Layouts, ThatShareALevelOverPartsOfTheDataGroupEqualOneRank) {
  for (const int zero : {1, 2, 3}) {
    CompileOptions options = options_of(tiny_llama(4, 2), zero == 3 ? 6 : 4, 1);
    options.parallel.zero = zero;
    options.parallel.zero_group = 2;
    options.parallel.reduce_gradients =
        zero == 1 ? ReduceGradients::Window : ReduceGradients::MicroBatch;
    SCOPED_TRACE(zero);
    equals_one_rank(options);
    const Ledger ledger = planned_ledger(Compilation(options).training(0), Algorithm::Direct);
    EXPECT_TRUE(ledger.contains({CollectiveKind::ReduceScatter, "dp_in"}));
    EXPECT_TRUE(ledger.contains({CollectiveKind::AllReduce, "dp_out"}));
    EXPECT_TRUE(ledger.contains({CollectiveKind::AllGather, "dp_in"}));
    EXPECT_FALSE(ledger.contains({CollectiveKind::ReduceScatter, "dp"}));
  }
}

TEST(Layouts, DrawnByLotEqualOneRank) {
  for (std::int64_t number = 1; number <= testing::runs(12, 300); ++number) {
    const CompileOptions options = drawn_layout(static_cast<std::uint64_t>(number));
    SCOPED_TRACE(fmt::format("layout {}: {}", number, described(options)));
    equals_one_rank(options);
  }
}

}  // namespace
}  // namespace sw
