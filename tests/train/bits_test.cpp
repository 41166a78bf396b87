#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/train/layouts.hpp"

namespace sw {
namespace {

using test::expect_same_bits;
using test::kSynchronous;
using test::options_of;
using test::pipeline_of;
using test::run;
using test::tiny_gpt2;
using test::tiny_llama;
using test::tiny_mixtral;
using test::tiny_qwen_moe;

TEST(Bits, AreTheSameForEveryChoiceThatDoesNotChangeTheArithmetic) {
  CompileOptions options = options_of(tiny_llama(4, 2), 3, 2);
  const SideRecord base = run(options, 3);
  expect_same_bits(base, run(options, 3));  // from run to run
  CompileOptions other = options;
  other.parallel.zero = 1;
  expect_same_bits(base, run(other, 3));
  other.parallel.bucket_mib = 25;
  other.parallel.overlap = false;
  expect_same_bits(base, run(other, 3));
  other.threads = 2;
  expect_same_bits(base, run(other, 3));
}

/// The levels cut the same sums differently, and gathers move bytes only: at equal
/// `reduce_gradients` nothing may change.
TEST(Bits, AreTheSameForEveryZeroLevel) {
  for (const DType precision : {DType::Float32, DType::BFloat16}) {
    for (const auto rounds : {ReduceGradients::Window, ReduceGradients::MicroBatch}) {
      CompileOptions options = options_of(tiny_llama(4, 2, precision == DType::BFloat16), 3, 2);
      options.precision = precision;
      options.gradient_precision = rounds == ReduceGradients::Window ? precision : DType::BFloat16;
      options.parallel.reduce_gradients = rounds;
      const SideRecord base = run(options, 2);
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("zero {}", zero));
        options.parallel.zero = zero;
        const SideRecord other = run(options, 2);
        expect_same_bits(base, other);
        EXPECT_TRUE(other.account_equal);
        EXPECT_TRUE(other.replicas_equal);
      }
    }
  }
}

TEST(Bits, AreTheSameHoweverUnitsAreGathered) {
  CompileOptions options = options_of(tiny_llama(4, 2), 4, 1);
  options.parallel.reduce_gradients = ReduceGradients::MicroBatch;
  const SideRecord base = run(options, 2);
  options.parallel.zero = 3;
  for (const int prefetch : {0, 1, 3}) {
    for (const bool reshard : {false, true}) {
      SCOPED_TRACE(fmt::format("prefetch {} reshard {}", prefetch, reshard));
      options.parallel.prefetch = prefetch;
      options.parallel.reshard_after_forward = reshard;
      options.parallel.overlap = prefetch != 3;
      options.parallel.bucket_mib = prefetch == 0 ? 25 : 0.01;
      const SideRecord other = run(options, 2);
      expect_same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
    }
  }
}

/// Stages run the kernels of one rank on the same operands and add in the order of micro-batches.
TEST(Bits, AreTheSameForEverySynchronousPipelineSchedule) {
  const SideRecord base = run(pipeline_of(1, PipelineSchedule::GPipe), 2);
  for (const PipelineSchedule schedule : kSynchronous) {
    SCOPED_TRACE(static_cast<int>(schedule));
    CompileOptions options = pipeline_of(2, schedule);
    options.parallel.virtual_stages = schedule == PipelineSchedule::Interleaved ? 2 : 1;
    const SideRecord other = run(options, 2);
    expect_same_bits(base, other);
    EXPECT_TRUE(other.account_equal);
    EXPECT_EQ(other.owned_elements, parameter_count(options.model));
  }
}

/// The update does the same arithmetic on the host, and copies change nothing.
TEST(Bits, AreTheSameWithOffload) {
  for (const auto& [offload, dp, zero, pp] :
       {std::tuple{Offload::Optimizer, 2, 1, 1}, std::tuple{Offload::Optimizer, 2, 2, 2},
        std::tuple{Offload::Parameters, 2, 3, 1}, std::tuple{Offload::Parameters, 1, 0, 2}}) {
    for (const DType precision : {DType::Float32, DType::BFloat16}) {
      CompileOptions options = options_of(tiny_llama(4, 2, pp == 2), dp, 2);
      options.precision = precision;
      options.parallel.layout.pp = pp;
      options.parallel.zero = zero;
      options.freeze = {"*layers.0*down*"};
      const SideRecord base = run(options, 3);
      options.parallel.offload = offload;
      options.parallel.prefetch = zero == 3 ? 2 : 1;
      SCOPED_TRACE(fmt::format("zero {} pp {} {}", zero, pp, to_text(precision)));
      const SideRecord other = run(options, 3);
      expect_same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
      EXPECT_TRUE(other.replicas_equal);
    }
  }
}

/// The same kernels on the same operands; and less memory, in this order.
TEST(Bits, AreTheSameWithRecomputation) {
  for (const ModelConfig& model : {tiny_llama(4, 2), tiny_gpt2(), tiny_mixtral(4, 2)}) {
    CompileOptions options = options_of(model, 1, 2);
    options.parallel.sequence_parallel = model.family != Family::Gpt2;
    options.model.layers = 4;
    options.accumulation = 1;
    const SideRecord base = run(options, 2);
    std::int64_t before = memory_account(Compilation(options).training(0)).activations;
    for (const Recompute what : {Recompute::Selective, Recompute::Full}) {
      SCOPED_TRACE(fmt::format("{} full {}", model.model_type, what == Recompute::Full));
      options.parallel.recompute = what;
      const SideRecord other = run(options, 2);
      expect_same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
      const std::int64_t after = memory_account(Compilation(options).training(0)).activations;
      EXPECT_LT(after, before);
      before = after;
    }
  }
}

/// A token's logits, loss and gradient do not depend on those beside it. Gradients of the head's
/// weight are sums over tokens, which parts add in another order: in float32 within a few roundings
/// of each of the 96 addends.
TEST(Bits, OfTheLossAreTheSameForEveryPartOfTheHead) {
  for (const int tp : {1, 2}) {
    CompileOptions options = options_of(tiny_llama(4, 2), 1, tp);
    options.head_chunk = 0;
    const SideRecord base = run(options, 1);
    for (const std::int64_t chunk : {16, 32}) {
      SCOPED_TRACE(fmt::format("tp {} chunk {}", tp, chunk));
      options.head_chunk = chunk;
      const SideRecord other = run(options, 1);
      EXPECT_EQ(other.steps.front().loss, base.steps.front().loss);
      EXPECT_NEAR(other.steps.front().gradient_norm, base.steps.front().gradient_norm,
                  1e-5 * base.steps.front().gradient_norm);
      EXPECT_TRUE(other.account_equal);
    }
  }
}

/// The same choices with experts, whose kernels sort rows: what a token meets does not depend on
/// threads, levels, stages or where state lives.
TEST(Bits, AreTheSameWithExpertsForEveryChoiceThatDoesNotChangeTheArithmetic) {
  CompileOptions options = options_of(tiny_qwen_moe(), 2, 2);
  options.model.layers = 4;
  options.parallel.sequence_parallel = true;
  options.parallel.reduce_gradients = ReduceGradients::MicroBatch;
  const SideRecord base = run(options, 3);
  const auto same = [&](const CompileOptions& other) {
    const SideRecord record = run(other, 3);
    expect_same_bits(base, record);
    EXPECT_TRUE(record.account_equal);
    EXPECT_TRUE(record.replicas_equal);
  };
  same(options);
  CompileOptions other = options;
  other.threads = 2;
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(fmt::format("zero {}", zero));
    other.parallel.zero = zero;
    other.parallel.bucket_mib = zero == 2 ? 25 : 0.01;
    other.parallel.recompute = zero == 3 ? Recompute::Selective : Recompute::None;
    same(other);
  }
  other.parallel.offload = Offload::Parameters;
  same(other);
  other = options;
  other.parallel.layout.pp = 2;
  other.parallel.pipeline = PipelineSchedule::ZeroBubble;
  same(other);
}

}  // namespace
}  // namespace sw
