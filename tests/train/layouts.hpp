#pragma once

#include <string>
#include <vector>

#include "lower/compile.hpp"
#include "train/compare.hpp"

/// Small models on real text in any layout: what the tests of whole steps share.
namespace sw::test {

/// 259 tokens, 32 wide, 2 layers.
[[nodiscard]] ModelConfig tiny_llama(std::int64_t heads, std::int64_t kv_heads, bool tied = false);
/// The same size, tied, with biases and dropout.
[[nodiscard]] ModelConfig tiny_gpt2();

/// The same size, each layer of 4 experts, of which a token sees 2.
[[nodiscard]] ModelConfig tiny_mixtral(std::int64_t heads, std::int64_t kv_heads,
                                       bool tied = false);
/// The same size with 5 experts, of which a token sees 2, beside one that all see; layer 1 has
/// none.
[[nodiscard]] ModelConfig tiny_qwen_moe();

/// Sentences, tokenized as bytes.
[[nodiscard]] Corpus corpus_of(std::int64_t sequence);

/// 2 micro-batches of 2 rows of 24 tokens per data-parallel rank; buckets, and parts of the head,
/// so small that there are several.
[[nodiscard]] CompileOptions options_of(const ModelConfig& model, int dp, int tp);
/// 4 micro-batches of one row on 5 layers.
[[nodiscard]] CompileOptions pipeline_of(int pp, PipelineSchedule schedule, bool tied = false);
inline constexpr PipelineSchedule kSynchronous[] = {
    PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward, PipelineSchedule::Interleaved,
    PipelineSchedule::ZeroBubble, PipelineSchedule::ZeroBubbleV};

/// Expert-parallel sizes that fit the layout and the model, ascending from 1.
[[nodiscard]] std::vector<int> possible_ep(const CompileOptions& options);
/// The context algorithm asked for, or the ring where heads cannot be exchanged.
[[nodiscard]] ContextAlgorithm possible_context(const CompileOptions& options);
/// Zero groups, several of them, that nest with cp and ep; 0 is one of the possibilities.
[[nodiscard]] std::vector<int> possible_zero_groups(const CompileOptions& options);
/// A layout of up to 8 ranks by the number that draws it: every choice of [parallel] that does not
/// contradict another.
[[nodiscard]] CompileOptions drawn_layout(std::uint64_t number);
[[nodiscard]] std::string described(const CompileOptions& options);

struct Job {
  std::vector<Window> windows;
  std::vector<StepSettings> settings;
};
[[nodiscard]] Job job_of(const CompileOptions& options, const Corpus& corpus, int steps);
/// Steps from initial weights.
[[nodiscard]] SideRecord run(const CompileOptions& options, int steps = 2);

void expect_same_bits(const SideRecord& a, const SideRecord& b);

}  // namespace sw::test
