#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "model/parameters.hpp"
#include "tests/allocations.hpp"
#include "tests/soak.hpp"
#include "tests/train/layouts.hpp"
#include "train/session.hpp"

namespace sw {
namespace {

using test::corpus_of;
using test::described;
using test::drawn_layout;
using test::Job;
using test::job_of;
using test::options_of;
using test::possible_context;
using test::possible_ep;
using test::possible_zero_groups;
using test::run;
using test::tiny_llama;
using test::tiny_qwen_moe;

/// Layouts of one model and global batch, from the numbers that draw them.
std::vector<CompileOptions> drawn_layouts_of_one_model(std::size_t count,
                                                       const ModelConfig& model) {
  constexpr std::int64_t kRows = 12;
  std::vector<CompileOptions> layouts;
  for (std::uint64_t number = 1; layouts.size() < count; ++number) {
    CompileOptions options = drawn_layout(number);
    const ParallelOptions& parallel = options.parallel;
    options.model = model;
    options.model.layers = 4;
    options.precision = options.gradient_precision = DType::Float32;
    const std::int64_t rows = options.micro_batch * parallel.layout.dp;
    options.accumulation = kRows / rows;
    const auto one_of = [&](const std::vector<int>& possible) {
      return possible[number % possible.size()];
    };
    options.parallel.layout.ep = one_of(possible_ep(options));
    options.parallel.context = possible_context(options);
    options.parallel.zero_group = one_of(possible_zero_groups(options));
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

void same_state(const SavedState& a, const SavedState& b, const ModelConfig& model) {
  const CheckpointReader left = a.open();
  const CheckpointReader right = b.open();
  const std::vector<StateTensor> tensors = left.tensors();
  ASSERT_EQ(tensors, right.tensors());
  // Weight, momentum and variance of each parameter, and a bias of each router.
  const auto routers = model.balance_bias > 0
                           ? static_cast<std::size_t>(model.layers) - model.dense_layers.size()
                           : 0;
  EXPECT_EQ(tensors.size(), 3 * parameter_specs(model).size() + routers);
  for (const StateTensor& tensor : tensors) {
    EXPECT_EQ(left.digest(tensor.tensor, tensor.state), right.digest(tensor.tensor, tensor.state))
        << tensor.tensor << " " << tensor.state;
  }
}

/// All ordered pairs: what one layout saved after a step, read by another and saved again, has the
/// same bits, and the next three steps agree with those of the layout that saved it.
void reshard_all_ways(const std::vector<CompileOptions>& layouts) {
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
      SCOPED_TRACE(fmt::format("from {}\nto   {}", described(layouts[a]), described(layouts[b])));
      const Compilation reader(layouts[b]);
      const SavedState again("again");
      (void)run_side(reader, corpus, {}, {}, load(saved),
                     [&](Session& session, World& world) { again.save(session, world); });
      same_state(saved, again, layouts[b].model);
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

TEST(Resharding, AnyLayoutReadsWhatAnyOtherWroteAndTrainsOn) {
  reshard_all_ways(
      drawn_layouts_of_one_model(static_cast<std::size_t>(testing::runs(4, 40)), tiny_llama(4, 2)));
}

/// Without a balance loss: it is of a micro-batch, whose size these layouts choose.
TEST(Resharding, OfExpertsGoesFromAnyLayoutToAnyOther) {
  ModelConfig model = tiny_qwen_moe();
  model.balance_loss = 0;
  model.balance_bias = 0.01;
  reshard_all_ways(
      drawn_layouts_of_one_model(static_cast<std::size_t>(testing::runs(2, 12)), model));
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
