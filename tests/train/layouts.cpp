#include "tests/train/layouts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "train/session.hpp"

namespace sw::test {
namespace {

struct TextFile {
  std::filesystem::path path;
  TextFile()
      : path(std::filesystem::temp_directory_path() /
             fmt::format("layouts_test_{}.txt", ::getpid())) {
    std::ofstream file(path);
    for (int i = 0; i < 400; ++i) {
      file << "The quick brown fox number " << i * i << " jumps over the lazy dog " << i << ".\n";
    }
  }
  ~TextFile() { std::filesystem::remove(path); }
};

/// Makes a Mixtral of a Llama, or a Qwen with a shared expert and a layer without others.
void give_experts(ModelConfig& config, bool qwen) {
  config.model_type = qwen ? "qwen2_moe" : "mixtral";
  config.experts = qwen ? 6 : 4;
  config.experts_per_token = 2;
  config.expert_feed_forward = 27;
  if (qwen) {
    config.qkv_bias = true;
    config.shared_feed_forward = 19;
    config.normalize_gates = false;
    config.dense_layers = {1};
    config.balance_loss = 0.3;
    config.z_loss = 0.1;
  } else {
    config.balance_bias = 0.01;
    config.feed_forward = config.expert_feed_forward;
  }
}

bool nest(int a, int b) { return a % b == 0 || b % a == 0; }

}  // namespace

ModelConfig tiny_llama(std::int64_t heads, std::int64_t kv_heads, bool tied) {
  ModelConfig config;
  config.vocabulary = 259;
  config.hidden = 32;
  config.layers = 2;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 8;
  config.feed_forward = 45;
  config.max_positions = 64;
  config.tied = tied;
  return config;
}

ModelConfig tiny_gpt2() {
  ModelConfig config = tiny_llama(4, 4, true);
  config.family = Family::Gpt2;
  config.model_type = "gpt2";
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.residual_dropout = 0.1;
  config.embedding_dropout = 0.1;
  return config;
}

ModelConfig tiny_mixtral(std::int64_t heads, std::int64_t kv_heads, bool tied) {
  ModelConfig config = tiny_llama(heads, kv_heads, tied);
  give_experts(config, false);
  return config;
}

ModelConfig tiny_qwen_moe() {
  ModelConfig config = tiny_llama(4, 2);
  give_experts(config, true);
  return config;
}

Corpus corpus_of(std::int64_t sequence) {
  static const TextFile kText;
  DataOptions data;
  data.sequence_length = sequence;
  CorpusSource source;
  source.patterns = {kText.path.string()};
  source.vocabulary = 259;
  return Corpus::load(data, source);
}

CompileOptions options_of(const ModelConfig& model, int dp, int tp) {
  CompileOptions options;
  options.model = model;
  options.parallel.layout.dp = dp;
  options.parallel.layout.tp = tp;
  options.parallel.sequence_parallel = false;
  options.parallel.zero = 0;
  options.parallel.bucket_mib = 0.05;
  options.optimizer.learning_rate = 1e-2;
  options.optimizer.gradient_clip = 0.5;
  options.micro_batch = 2;
  options.accumulation = 2;
  options.sequence = 24;
  options.head_chunk = 16;
  return options;
}

CompileOptions pipeline_of(int pp, PipelineSchedule schedule, bool tied) {
  CompileOptions options = options_of(tiny_llama(4, 2, tied), 1, 1);
  options.model.layers = 5;
  options.parallel.layout.pp = pp;
  options.parallel.pipeline = schedule;
  options.micro_batch = 1;
  options.accumulation = 4;
  return options;
}

std::vector<int> possible_ep(const CompileOptions& options) {
  const Layout& layout = options.parallel.layout;
  const int ranks = layout.dp * layout.cp;
  std::vector<int> possible{1};
  for (int ep = 2; ep <= ranks && options.model.experts > 0; ++ep) {
    if (nest(ep, layout.cp) && ranks % ep == 0 && options.model.experts % ep == 0) {
      possible.push_back(ep);
    }
  }
  return possible;
}

ContextAlgorithm possible_context(const CompileOptions& options) {
  const ParallelOptions& parallel = options.parallel;
  const bool exchanges = !parallel.sequence_parallel &&
                         options.model.kv_heads % (parallel.layout.cp * parallel.layout.tp) == 0;
  return parallel.context == ContextAlgorithm::AllToAll && !exchanges ? ContextAlgorithm::Ring
                                                                      : parallel.context;
}

std::vector<int> possible_zero_groups(const CompileOptions& options) {
  const Layout& layout = options.parallel.layout;
  const int ranks = layout.dp * layout.cp;
  std::vector<int> possible{0};
  for (int group = 2; group < ranks && options.parallel.zero > 0; ++group) {
    if (ranks % group == 0 && nest(group, layout.cp) && nest(group, layout.ep)) {
      possible.push_back(group);
    }
  }
  return possible;
}

CompileOptions drawn_layout(std::uint64_t number) {
  std::mt19937_64 random(number);
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const auto one_of = [&](const std::vector<int>& possible) {
    return possible[static_cast<std::size_t>(pick(static_cast<int>(possible.size())))];
  };
  for (;;) {
    const bool gpt2 = pick(4) == 0;
    const int heads = pick(2) == 0 ? 4 : 8;
    ModelConfig model = gpt2 ? tiny_gpt2() : tiny_llama(heads, pick(2) == 0 ? 2 : 4, pick(2) == 0);
    model.layers = 2 + pick(5);
    CompileOptions options = options_of(model, 1 + pick(4), 1 << pick(3));
    ParallelOptions& parallel = options.parallel;
    parallel.layout.pp = 1 + pick(4);
    parallel.layout.cp = 1 + pick(3);
    parallel.pipeline = kSynchronous[static_cast<std::size_t>(pick(5))];
    const bool interleaved = parallel.pipeline == PipelineSchedule::Interleaved;
    parallel.virtual_stages = interleaved ? 1 + pick(3) : 1;
    const int chunks =
        parallel.pipeline == PipelineSchedule::ZeroBubbleV ? 2 : parallel.virtual_stages;
    options.micro_batch = 1 + pick(2);
    options.accumulation = 1 + pick(5);
    options.sequence = 48;
    const int world = parallel.layout.world();
    const bool fits =
        world <= 8 && world > 1 && model.heads % parallel.layout.tp == 0 &&
        (parallel.layout.pp == 1 || parallel.layout.pp * chunks <= model.layers) &&
        (parallel.layout.pp == 1 || !interleaved || options.accumulation % parallel.layout.pp == 0);
    if (!fits) {
      continue;
    }
    parallel.sequence_parallel = parallel.layout.tp > 1 && pick(2) == 0;
    parallel.zero = pick(4);
    const int data = parallel.layout.dp * parallel.layout.cp;
    const bool in_groups = parallel.zero > 0 && data > 2 && data % 2 == 0 && pick(2) == 0;
    parallel.reduce_gradients =
        pick(2) == 0 ? ReduceGradients::Window : ReduceGradients::MicroBatch;
    parallel.prefetch = pick(3);
    parallel.reshard_after_forward = pick(2) == 0;
    parallel.keep_gathered = pick(2) == 0;
    parallel.overlap = pick(4) != 0;
    parallel.bucket_mib = pick(2) == 0 ? 0.01 : 25;
    parallel.recompute = static_cast<Recompute>(pick(3));
    options.precision = pick(8) == 0 ? DType::BFloat16 : DType::Float32;
    options.gradient_precision = pick(8) == 0 ? DType::BFloat16 : DType::Float32;
    parallel.offload = static_cast<Offload>(pick(4) % 3);
    if (parallel.offload == Offload::Parameters && parallel.zero % 3 != 0 && data > 1) {
      parallel.offload = Offload::Optimizer;
    }
    parallel.context = static_cast<ContextAlgorithm>(pick(3));
    if (!gpt2 && pick(3) == 0) {  // after all that those without draw
      give_experts(options.model, pick(2) == 0);
      options.precision = DType::Float32;  // bfloat16 in another order chooses other experts
      Layout& layout = parallel.layout;
      if (layout.cp == 2 && world <= 4) {
        layout.cp = 2 << pick(2);
      } else if (layout.dp == 2 && world <= 4) {
        layout.dp = 2 << pick(2);
      } else if (layout.cp == 1 && layout.dp == 4 && pick(2) == 0) {
        std::swap(layout.dp, layout.cp);
      }
      layout.ep = one_of(possible_ep(options));
      parallel.expert_buffer = 1 + pick(3) / 2.0;
    }
    if (in_groups || parallel.layout.ep > 1) {
      parallel.zero_group = one_of(possible_zero_groups(options));
    }
    parallel.context = possible_context(options);
    return options;
  }
}

std::string described(const CompileOptions& options) {
  const ParallelOptions& p = options.parallel;
  return fmt::format(
      "{} pp {} dp {} cp {} tp {} ep {} buffer {} schedule {} chunks {} zero {} every micro-batch "
      "{} "
      "sequence "
      "parallel "
      "{} group {} recompute {} prefetch {} reshard {} keep {} overlap {} context {} {} x {} rows, "
      "{} "
      "layers, "
      "tied {}",
      options.model.model_type, p.layout.pp, p.layout.dp, p.layout.cp, p.layout.tp, p.layout.ep,
      p.expert_buffer, static_cast<int>(p.pipeline), p.virtual_stages, p.zero,
      p.reduce_gradients == ReduceGradients::MicroBatch, p.sequence_parallel, p.zero_group,
      static_cast<int>(p.recompute), p.prefetch, p.reshard_after_forward, p.keep_gathered,
      p.overlap, static_cast<int>(p.context), options.accumulation, options.micro_batch,
      options.model.layers, options.model.tied);
}

Job job_of(const CompileOptions& options, const Corpus& corpus, int steps) {
  const Sampler sampler(corpus.samples(),
                        options.micro_batch * options.parallel.layout.dp * options.accumulation, 3,
                        DataOptions::LastWindow::Pad);
  Job job;
  std::int64_t position = 0;
  for (int s = 0; s < steps; ++s) {
    job.windows.push_back(sampler.window(position));
    position = job.windows.back().next;
    job.settings.push_back(
        {options.optimizer.learning_rate, options.optimizer.gradient_clip, s + 1, 3, s});
  }
  return job;
}

SideRecord run(const CompileOptions& options, int steps) {
  const Corpus corpus = corpus_of(options.sequence);
  const Job job = job_of(options, corpus, steps);
  return run_side(Compilation(options), corpus, job.windows, job.settings,
                  [](Session& session) { session.initialize(5); });
}

void expect_same_bits(const SideRecord& a, const SideRecord& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    EXPECT_EQ(a.steps[s].loss, b.steps[s].loss);
    EXPECT_EQ(a.steps[s].balance_loss, b.steps[s].balance_loss);
    EXPECT_EQ(a.steps[s].z_loss, b.steps[s].z_loss);
    EXPECT_EQ(a.steps[s].expert_load, b.steps[s].expert_load);
    EXPECT_EQ(a.steps[s].gradient_norm, b.steps[s].gradient_norm);
    EXPECT_TRUE(a.steps[s].gradients == b.steps[s].gradients);
    EXPECT_TRUE(a.steps[s].weights == b.steps[s].weights);
  }
}

}  // namespace sw::test
