#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "tests/allocations.hpp"
#include "tests/soak.hpp"
#include "train/compare.hpp"
#include "train/session.hpp"

namespace sw {
namespace {

ModelConfig tiny_llama(std::int64_t heads, std::int64_t kv_heads, bool tied = false) {
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

Corpus corpus_of(std::int64_t sequence) {
  static const TextFile text;
  DataOptions data;
  data.sequence_length = sequence;
  CorpusSource source;
  source.patterns = {text.path.string()};
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
  return options;
}

struct Job {
  std::vector<Window> windows;
  std::vector<StepSettings> settings;
};

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

SideRecord run(const CompileOptions& options, int steps = 2) {
  const Corpus corpus = corpus_of(options.sequence);
  const Job job = job_of(options, corpus, steps);
  return run_side(Compilation(options), corpus, job.windows, job.settings,
                  [](Session& session) { session.initialize(5); });
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
  const SideRecord a = run_side(layout, corpus, job.windows, job.settings, start);
  const SideRecord b = run_side(reference, corpus, job.windows, job.settings, start);
  const Comparison result = compare(a, b, options.optimizer, job.settings, verify_bound(options));
  EXPECT_TRUE(result.equal) << "gradient " << result.worst_gradient.name << " "
                            << result.worst_gradient.relative_error << ", weight "
                            << result.worst_weight.name << " " << result.worst_weight.relative_error
                            << ", loss " << result.loss[0] << " " << result.loss[1];
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
  for (const auto context : {ContextAlgorithm::Gather, ContextAlgorithm::Ring}) {
    const bool ring = context == ContextAlgorithm::Ring;
    for (const auto& [dp, cp, tp, pp, zero] :
         {std::array{1, 2, 1, 1, 0}, std::array{1, 4, 1, 1, 3}, std::array{2, 2, 1, 1, 1},
          std::array{1, 3, 2, 1, 2}, std::array{1, 2, 2, 2, 1}}) {
      CompileOptions options = options_of(tiny_llama(4, ring ? 1 : 2, zero == 1), dp, tp);
      options.parallel.layout.cp = cp;
      options.parallel.layout.pp = pp;
      options.parallel.context = context;
      options.parallel.sequence_parallel = tp > 1;
      options.parallel.zero = zero;
      options.parallel.recompute = zero == 2 ? Recompute::Full : Recompute::None;
      options.parallel.pipeline =
          ring ? PipelineSchedule::ZeroBubble : PipelineSchedule::OneForwardOneBackward;
      options.precision = ring && zero == 3 ? DType::BFloat16 : DType::Float32;
      SCOPED_TRACE(
          fmt::format("ring {} dp {} cp {} tp {} pp {} zero {}", ring, dp, cp, tp, pp, zero));
      equals_one_rank(options);
    }
    CompileOptions gpt2 = options_of(tiny_gpt2(), 1, 1);  // with dropout: cut in order
    gpt2.parallel.layout.cp = ring ? 3 : 2;
    gpt2.parallel.context = context;
    SCOPED_TRACE(fmt::format("ring {} with dropout", ring));
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
          fmt::format("pp {} dp {} tp {} zero {} {}", pp, dp, tp, zero, sw::to_text(precision)));
      equals_one_rank(options);
    }
  }
}

void same_bits(const SideRecord& a, const SideRecord& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    EXPECT_EQ(a.steps[s].loss, b.steps[s].loss);
    EXPECT_EQ(a.steps[s].gradient_norm, b.steps[s].gradient_norm);
    EXPECT_TRUE(a.steps[s].gradients == b.steps[s].gradients);
    EXPECT_TRUE(a.steps[s].weights == b.steps[s].weights);
  }
}

TEST(Bits, AreTheSameForEveryChoiceThatDoesNotChangeTheArithmetic) {
  CompileOptions options = options_of(tiny_llama(4, 2), 3, 2);
  const SideRecord base = run(options, 3);
  same_bits(base, run(options, 3));  // from run to run
  CompileOptions other = options;
  other.parallel.zero = 1;
  same_bits(base, run(other, 3));
  other.parallel.bucket_mib = 25;
  other.parallel.overlap = false;
  same_bits(base, run(other, 3));
  other.threads = 2;
  same_bits(base, run(other, 3));
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
        same_bits(base, other);
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
      same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
    }
  }
}

CompileOptions pipeline_of(int pp, PipelineSchedule schedule, bool tied = false) {
  CompileOptions options = options_of(tiny_llama(4, 2, tied), 1, 1);
  options.model.layers = 5;
  options.parallel.layout.pp = pp;
  options.parallel.pipeline = schedule;
  options.micro_batch = 1;
  options.accumulation = 4;
  return options;
}

const std::vector<PipelineSchedule> kSynchronous = {
    PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward, PipelineSchedule::Interleaved,
    PipelineSchedule::ZeroBubble, PipelineSchedule::ZeroBubbleV};

/// Stages run the kernels of one rank on the same operands and add in the order of micro-batches.
TEST(Bits, AreTheSameForEverySynchronousPipelineSchedule) {
  const SideRecord base = run(pipeline_of(1, PipelineSchedule::GPipe), 2);
  for (const PipelineSchedule schedule : kSynchronous) {
    SCOPED_TRACE(static_cast<int>(schedule));
    CompileOptions options = pipeline_of(2, schedule);
    options.parallel.virtual_stages = schedule == PipelineSchedule::Interleaved ? 2 : 1;
    const SideRecord other = run(options, 2);
    same_bits(base, other);
    EXPECT_TRUE(other.account_equal);
    EXPECT_EQ(other.owned_elements, parameter_count(options.model));
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

/// A layout of up to 8 ranks by the number that draws it: every choice of [parallel] that does not
/// contradict another.
CompileOptions drawn_layout(std::uint64_t number) {
  std::mt19937_64 random(number);
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
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
    parallel.zero_group = parallel.zero > 0 && data > 2 && data % 2 == 0 && pick(2) == 0 ? 2 : 0;
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
    parallel.context = pick(2) == 0 ? ContextAlgorithm::Ring : ContextAlgorithm::Gather;
    return options;
  }
}

std::string to_text(const CompileOptions& options) {
  const ParallelOptions& p = options.parallel;
  return fmt::format(
      "pp {} dp {} cp {} tp {} schedule {} chunks {} zero {} every micro-batch {} sequence "
      "parallel "
      "{} group {} recompute {} prefetch {} reshard {} keep {} overlap {} ring {} {} x {} rows, {} "
      "layers, "
      "tied {}",
      p.layout.pp, p.layout.dp, p.layout.cp, p.layout.tp, static_cast<int>(p.pipeline),
      p.virtual_stages, p.zero, p.reduce_gradients == ReduceGradients::MicroBatch,
      p.sequence_parallel, p.zero_group, static_cast<int>(p.recompute), p.prefetch,
      p.reshard_after_forward, p.keep_gathered, p.overlap, p.context == ContextAlgorithm::Ring,
      options.accumulation, options.micro_batch, options.model.layers, options.model.tied);
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
    SCOPED_TRACE(fmt::format("layout {}: {}", number, to_text(options)));
    equals_one_rank(options);
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
      SCOPED_TRACE(fmt::format("zero {} pp {} {}", zero, pp, sw::to_text(precision)));
      const SideRecord other = run(options, 3);
      same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
      EXPECT_TRUE(other.replicas_equal);
    }
  }
}

/// The same kernels on the same operands; and less memory, in this order.
TEST(Bits, AreTheSameWithRecomputation) {
  for (const bool gpt2 : {false, true}) {
    CompileOptions options = options_of(gpt2 ? tiny_gpt2() : tiny_llama(4, 2), 1, 2);
    options.parallel.sequence_parallel = !gpt2;
    options.model.layers = 4;
    options.accumulation = 1;
    const SideRecord base = run(options, 2);
    std::int64_t before = memory_account(Compilation(options).training(0)).activations;
    for (const Recompute what : {Recompute::Selective, Recompute::Full}) {
      SCOPED_TRACE(fmt::format("gpt2 {} full {}", gpt2, what == Recompute::Full));
      options.parallel.recompute = what;
      const SideRecord other = run(options, 2);
      same_bits(base, other);
      EXPECT_TRUE(other.account_equal);
      const std::int64_t after = memory_account(Compilation(options).training(0)).activations;
      EXPECT_LT(after, before);
      before = after;
    }
  }
}

/// Layouts of one model and global batch, from the numbers that draw them.
std::vector<CompileOptions> drawn_layouts_of_one_model(std::size_t count) {
  constexpr std::int64_t kRows = 12;
  std::vector<CompileOptions> layouts;
  for (std::uint64_t number = 1; layouts.size() < count; ++number) {
    CompileOptions options = drawn_layout(number);
    const ParallelOptions& parallel = options.parallel;
    options.model = tiny_llama(4, 2);
    options.model.layers = 4;
    options.precision = options.gradient_precision = DType::Float32;
    const std::int64_t rows = options.micro_batch * parallel.layout.dp;
    options.accumulation = kRows / rows;
    const int chunks =
        parallel.pipeline == PipelineSchedule::ZeroBubbleV ? 2 : parallel.virtual_stages;
    const bool fits = kRows % rows == 0 && parallel.layout.pp * chunks <= options.model.layers &&
                      (parallel.pipeline != PipelineSchedule::Interleaved ||
                       options.accumulation % parallel.layout.pp == 0);
    if (fits) {
      layouts.push_back(options);
    }
  }
  return layouts;
}

/// A checkpoint folder of this test that is gone when this is.
struct SavedState {
  std::filesystem::path folder;

  explicit SavedState(const std::string& name)
      : folder(std::filesystem::temp_directory_path() /
               fmt::format("layouts_test_{}_{}", ::getpid(), name)) {
    std::filesystem::remove_all(folder);
  }
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;
  ~SavedState() { std::filesystem::remove_all(folder); }

  void save(Session& session, World& world) const {
    WriterOptions options;
    options.folder = folder;
    options.run = options.session = "test";
    options.rank = world.rank();
    options.ranks = world.size();
    options.background = false;
    CheckpointWriter writer(real_files(), options);
    TrainingState state;
    state.step = 1;
    writer.save(state, session.owned_state());
    writer.wait();
  }
  [[nodiscard]] CheckpointReader open() const {
    return CheckpointReader(find_newest(folder, [](const std::string&) {}).value());
  }
};

void same_state(const SavedState& a, const SavedState& b) {
  const CheckpointReader left = a.open();
  const CheckpointReader right = b.open();
  const std::vector<StateTensor> tensors = left.tensors();
  ASSERT_EQ(tensors, right.tensors());
  EXPECT_EQ(tensors.size(), 3U * (4 * 9 + 3));  // weight, momentum, variance of each parameter
  for (const StateTensor& tensor : tensors) {
    EXPECT_EQ(left.digest(tensor.tensor, tensor.state), right.digest(tensor.tensor, tensor.state))
        << tensor.tensor << " " << tensor.state;
  }
}

/// All ordered pairs: what one layout saved after a step, read by another and saved again, has the
/// same bits, and the next three steps agree with those of the layout that saved it.
TEST(Resharding, AnyLayoutReadsWhatAnyOtherWroteAndTrainsOn) {
  const std::vector<CompileOptions> layouts =
      drawn_layouts_of_one_model(static_cast<std::size_t>(testing::runs(4, 40)));
  const Corpus corpus = corpus_of(layouts.front().sequence);
  const Job job = job_of(layouts.front(), corpus, 4);
  const std::vector<Window> first{job.windows.front()};
  const std::vector<Window> rest(job.windows.begin() + 1, job.windows.end());
  const std::vector<StepSettings> rest_settings(job.settings.begin() + 1, job.settings.end());
  const auto load = [](const SavedState& from) {
    return [&from](Session& session) { session.load_checkpoint(from.open()); };
  };
  for (std::size_t a = 0; a < layouts.size(); ++a) {
    const Compilation writer(layouts[a]);
    const SavedState saved("saved");
    (void)run_side(
        writer, corpus, first, {job.settings.front()},
        [](Session& session) { session.initialize(5); },
        [&](Session& session, World& world) { saved.save(session, world); });
    const SideRecord straight = run_side(writer, corpus, rest, rest_settings, load(saved));
    for (std::size_t b = 0; b < layouts.size(); ++b) {
      if (a == b) {
        continue;
      }
      SCOPED_TRACE(fmt::format("from {}\nto   {}", to_text(layouts[a]), to_text(layouts[b])));
      const Compilation reader(layouts[b]);
      const SavedState again("again");
      (void)run_side(reader, corpus, {}, {}, load(saved),
                     [&](Session& session, World& world) { again.save(session, world); });
      same_state(saved, again);
      const SideRecord resumed = run_side(reader, corpus, rest, rest_settings, load(again));
      const Comparison result =
          compare(resumed, straight, layouts[b].optimizer, rest_settings, verify_bound(layouts[b]));
      EXPECT_TRUE(result.equal) << result.worst_gradient.name << " "
                                << result.worst_gradient.relative_error << ", "
                                << result.worst_weight.name << " "
                                << result.worst_weight.relative_error;
      EXPECT_TRUE(resumed.replicas_equal);
      EXPECT_TRUE(resumed.account_equal);
    }
  }
}

/// Of all ranks together: what is on the heap while they read, besides the State that they fill.
TEST(Resharding, NeedsAFifthMoreThanTheFinalMemoryAtMost) {
  CompileOptions options = options_of(tiny_llama(4, 2), 2, 1);
  options.model.vocabulary = 2000;
  options.model.hidden = 256;
  options.model.feed_forward = 1024;
  for (const int zero : {0, 3}) {
    options.parallel.zero = zero;
    options.precision = zero == 0 ? DType::Float32 : DType::BFloat16;
    const Compilation compilation(options);
    const SavedState saved("memory");
    const Corpus corpus = corpus_of(options.sequence);
    (void)run_side(
        compilation, corpus, {}, {}, [](Session& session) { session.initialize(5); },
        [&](Session& session, World& world) { saved.save(session, world); });
    const auto worlds = make_local_worlds(2, {});
    std::vector<std::unique_ptr<Session>> sessions;
    std::int64_t state = 0;
    for (const auto& world : worlds) {
      sessions.push_back(std::make_unique<Session>(compilation, *world));
      for (const Buffer& buffer : compilation.state(world->rank()).buffers) {
        state += buffer.bytes;
      }
    }
    test::watch_peak();
    std::vector<std::thread> ranks;
    for (const auto& session : sessions) {
      ranks.emplace_back([&] { session->load_checkpoint(saved.open()); });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    EXPECT_GT(test::peak_bytes(), 0);
    EXPECT_LT(test::peak_bytes(), state / 5) << "of " << state;
  }
}

TEST(Saving, TakesThePlannedBytesOnEveryRank) {
  for (const DType precision : {DType::Float32, DType::BFloat16}) {
    CompileOptions options = options_of(tiny_llama(4, 2), 3, 2);
    options.parallel.zero = precision == DType::Float32 ? 1 : 3;
    options.precision = precision;
    options.freeze = {"*layers.0*"};
    const Compilation compilation(options);
    const auto worlds = make_local_worlds(compilation.world(), {});
    std::vector<std::int64_t> saved(worlds.size());
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        saved[rank] =
            CheckpointWriter::snapshot_bytes(Session(compilation, *worlds[rank]).owned_state());
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    for (int rank = 0; rank < compilation.world(); ++rank) {
      EXPECT_EQ(checkpoint_bytes(compilation, rank), saved[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST(Numerics, ANonFiniteGradientSkipsTheUpdateOnAllRanks) {
  CompileOptions options = options_of(tiny_llama(4, 2), 2, 2);
  options.parallel.zero = 1;
  const Corpus corpus = corpus_of(options.sequence);
  Job job = job_of(options, corpus, 2);
  job.settings[0].learning_rate =
      std::numeric_limits<double>::infinity();  // the weights leave the finite numbers
  const SideRecord record = run_side(Compilation(options), corpus, job.windows, job.settings,
                                     [](Session& session) { session.initialize(5); });
  EXPECT_TRUE(record.steps[0].applied);
  EXPECT_FALSE(record.steps[1].applied);
  EXPECT_TRUE(record.replicas_equal);
}

TEST(Numerics, TheLossFallsOnRealText) {
  CompileOptions options = options_of(tiny_llama(4, 2), 1, 1);
  options.micro_batch = 8;
  options.accumulation = 1;
  const SideRecord record = run(options, 30);
  EXPECT_NEAR(record.steps.front().loss, std::log(259.0),
              0.2);  // the uniform distribution over the vocabulary
  EXPECT_LT(record.steps.back().loss, 3.2);
}

}  // namespace
}  // namespace sw
