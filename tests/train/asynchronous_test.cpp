#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "model/parameters.hpp"
#include "tests/model/reference_run.hpp"
#include "tests/train/layouts.hpp"
#include "train/session.hpp"

/// Pipelines that do not wait, against a model that is computed op by op in double, one micro-batch
/// after the other, with the version of each stage's weights that the closed form says.
namespace sw {
namespace {

using test::corpus_of;
using test::described;
using test::pipeline_of;

constexpr int kLayers = 5;
constexpr std::uint64_t kSeed = 5;
constexpr int kWindows = 2;

/// Two layers on every stage but the last.
CompileOptions asynchronous(int pp, PipelineSchedule schedule, int micro_batches) {
  CompileOptions options = pipeline_of(pp, schedule);
  options.parallel.stage_layers.assign(static_cast<std::size_t>(pp), 1);
  for (int left = kLayers - pp, stage = 0; left > 0; --left, ++stage) {
    ++options.parallel.stage_layers[static_cast<std::size_t>(stage % pp)];
  }
  options.accumulation = micro_batches;
  options.sequence = 8;
  options.optimizer.gradient_clip = 0;
  options.optimizer.schedule = Schedule::Linear;
  options.optimizer.learning_rate = 2e-2;
  return options;
}

int stage_of(const Value& parameter, const CompileOptions& options) {
  const std::vector<int>& layers = options.parallel.stage_layers;
  if (parameter.layer < 0) {
    return parameter.name.find("embed") == std::string::npos ? static_cast<int>(layers.size()) - 1
                                                             : 0;
  }
  int stage = 0;
  for (int first = layers.front(); parameter.layer >= first;
       first += layers[static_cast<std::size_t>(stage)]) {
    ++stage;
  }
  return stage;
}

/// Stage s of P is P - 1 - s updates behind under pipedream; all are one update behind under 2bw,
/// whose updates take P micro-batches.
int version_of(const CompileOptions& options, int stage, int micro_batch) {
  const int stages = options.parallel.layout.pp;
  return options.parallel.pipeline == PipelineSchedule::PipeDream
             ? std::max(0, micro_batch - (stages - 1 - stage))
             : std::max(0, micro_batch / stages - 1);
}

using Weights = std::map<std::string, std::vector<double>>;

/// The optimizer as its papers write it, one weight at a time.
class Optimizer {
 public:
  explicit Optimizer(const OptimizerOptions& options) : options_(options) {}

  void update(Weights& weights, const Weights& gradients, const Graph& graph, double rate) {
    ++updates_;
    const double first_correction = 1 - std::pow(options_.betas[0], updates_);
    const double second_correction = 1 - std::pow(options_.betas[1], updates_);
    for (const ValueId id : graph.parameters()) {
      const Value& value = graph.value(id);
      const double decay = value.decay ? options_.weight_decay : 0;
      std::vector<double>& w = weights.at(value.name);
      const std::vector<double>& g = gradients.at(value.name);
      first_[value.name].resize(w.size());
      second_[value.name].resize(w.size());
      for (std::size_t i = 0; i < w.size(); ++i) {
        double& m = first_[value.name][i];
        double& v = second_[value.name][i];
        if (options_.name == OptimizerName::Sgd) {
          const double gradient = g[i] + decay * w[i];
          m = updates_ == 1 ? gradient : options_.momentum * m + gradient;
          w[i] -= rate * m;
          continue;
        }
        m = options_.betas[0] * m + (1 - options_.betas[0]) * g[i];
        v = options_.betas[1] * v + (1 - options_.betas[1]) * g[i] * g[i];
        const double m_hat = m / first_correction;
        const double v_hat = v / second_correction;
        w[i] -= rate * (decay * w[i] + m_hat / (std::sqrt(v_hat) + options_.epsilon));
      }
    }
  }

 private:
  const OptimizerOptions& options_;
  int updates_ = 0;
  Weights first_, second_;
};

/// A run by hand. `stale` false: every gradient is that of the newest weights.
class ByHand {
 public:
  ByHand(const CompileOptions& options, const Corpus& corpus, bool stale)
      : options_(options),
        corpus_(corpus),
        stale_(stale),
        whole_(one_rank(options)),
        run_(graph()),
        optimizer_(options.optimizer),
        every_(options.parallel.pipeline == PipelineSchedule::PipeDream
                   ? 1
                   : options.parallel.layout.pp) {
    std::vector<float> values;
    for (const ParameterSpec& spec : parameter_specs(options.model)) {
      values.resize(static_cast<std::size_t>(elements(spec.shape)));
      initialize(spec, kSeed, whole_range(spec.shape).box, whole_range(spec.shape).elements,
                 values);
      weights_[spec.name].assign(values.begin(), values.end());
    }
  }

  void window(const Window& window, int total_updates) {
    std::vector<Weights> versions{weights_};
    losses_ = tokens_ = 0;
    const auto updates = static_cast<int>(options_.accumulation) / every_;
    for (int u = 0; u < updates; ++u) {
      std::vector<std::int64_t> counts;
      double count = 0;
      for (int m = u * every_; m < (u + 1) * every_; ++m) {
        count += valid_tokens(window, m);
      }
      Weights sum;
      for (int m = u * every_; m < (u + 1) * every_; ++m) {
        add_gradients(window, m, count, versions, sum);
      }
      const double rate =
          options_.optimizer.learning_rate * (1 - static_cast<double>(done_) / total_updates);
      optimizer_.update(weights_, sum, graph(), rate);
      versions.push_back(weights_);
      ++done_;
      tokens_ += count;
    }
  }

  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] double loss() const { return losses_ / tokens_; }

 private:
  [[nodiscard]] const ModelGraph& model() const { return whole_.model(); }
  [[nodiscard]] const Graph& graph() const { return whole_.model().graph; }

  [[nodiscard]] std::span<const std::int64_t> samples(const Window& window, int m) const {
    const auto rows = static_cast<std::size_t>(whole_.rows_per_micro_batch());
    return std::span(window.samples).subspan(static_cast<std::size_t>(m) * rows, rows);
  }

  [[nodiscard]] double valid_tokens(const Window& window, int m) const {
    double valid = 0;
    for (const std::int64_t sample : samples(window, m)) {
      valid += static_cast<double>(corpus_.valid_tokens(sample));
    }
    return valid;
  }

  void add_gradients(const Window& window, int m, double count,
                     const std::vector<Weights>& versions, Weights& sum) {
    for (const ValueId id : graph().parameters()) {
      const Value& value = graph().value(id);
      const int version = stale_ ? version_of(options_, stage_of(value, options_), m)
                                 : static_cast<int>(versions.size()) - 1;
      run_.set(id, versions.at(static_cast<std::size_t>(version)).at(value.name));
    }
    const auto length = static_cast<std::size_t>(options_.sequence);
    std::array<std::vector<std::int32_t>, 4> rows;
    for (const std::int64_t sample : samples(window, m)) {
      std::array<std::vector<std::int32_t>, 4> row;
      for (auto& values : row) {
        values.resize(length);
      }
      corpus_.read(sample, row[0], row[1], row[2], row[3]);
      for (std::size_t i = 0; i < row.size(); ++i) {
        rows[i].insert(rows[i].end(), row[i].begin(), row[i].end());
      }
    }
    const ValueId inputs[] = {model().tokens, model().labels, model().positions, model().documents};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      run_.set(inputs[i], std::span<const std::int32_t>(rows[i]));
    }
    run_.set(model().count, std::vector<double>{count});
    run_.run();
    losses_ += run_.values(model().loss).front() * count;
    for (const ValueId id : graph().parameters()) {
      const std::vector<double> gradient = run_.gradient(id);
      std::vector<double>& total = sum[graph().value(id).name];
      total.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        total[i] += gradient[i];
      }
    }
  }

  const CompileOptions& options_;
  const Corpus& corpus_;
  bool stale_;
  Compilation whole_;
  ReferenceRun run_;
  Optimizer optimizer_;
  int every_;
  Weights weights_;
  int done_ = 0;
  double losses_ = 0;
  double tokens_ = 0;
};

struct Run {
  SideRecord engine;
  std::vector<Window> windows;
  int total_updates = 0;
};

Run run_engine(const CompileOptions& options, const Corpus& corpus) {
  const Compilation compilation(options);
  const Sampler sampler(corpus.samples(), compilation.rows_per_window(), 3,
                        DataOptions::LastWindow::Pad);
  Run run;
  run.total_updates = kWindows * compilation.updates_per_window();
  std::vector<StepSettings> settings;
  std::int64_t position = 0;
  for (int s = 0; s < kWindows; ++s) {
    run.windows.push_back(sampler.window(position));
    position = run.windows.back().next;
    settings.push_back(step_settings(compilation, corpus, run.windows.back(), run.total_updates,
                                     std::int64_t{s} * compilation.updates_per_window(), 3, s));
  }
  run.engine = run_side(compilation, corpus, run.windows, settings,
                        [](Session& session) { session.initialize(kSeed); });
  return run;
}

/// The largest difference of a weight, in parts of how far the run moved the weights.
double distance(const Weights& a, const LogicalTensors& b, const Weights& start) {
  double worst = 0;
  double moved = 0;
  for (const auto& [name, values] : a) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(values[i] - b.at(name)[i]));
      moved = std::max(moved, std::abs(values[i] - start.at(name)[i]));
    }
  }
  return worst / moved;
}

void expect_equals_by_hand(const CompileOptions& options) {
  SCOPED_TRACE(described(options));
  const Corpus corpus = corpus_of(options.sequence);
  const Run run = run_engine(options, corpus);
  EXPECT_TRUE(run.engine.account_equal);
  EXPECT_TRUE(run.engine.replicas_equal);
  ByHand stale(options, corpus, true);
  ByHand fresh(options, corpus, false);
  const Weights start = stale.weights();
  for (std::size_t s = 0; s < run.windows.size(); ++s) {
    stale.window(run.windows[s], run.total_updates);
    fresh.window(run.windows[s], run.total_updates);
    EXPECT_NEAR(run.engine.steps[s].loss / stale.loss(), 1, 1e-5);
    EXPECT_TRUE(run.engine.steps[s].applied);
  }
  const LogicalTensors& found = run.engine.steps.back().weights;
  // float32 against float64: the sums of a model this size, a dozen updates deep, came to 1e-5 of
  // the way that the weights went; AdamW divides by gradients near 0.
  const bool adamw = options.optimizer.name == OptimizerName::AdamW;
  EXPECT_LT(distance(stale.weights(), found, start), adamw ? 2e-3 : 1e-4);
  // Were the versions others, it would show.
  EXPECT_GT(distance(fresh.weights(), found, start), 0.3);
}

CompileOptions with_sgd(CompileOptions options, double momentum) {
  options.optimizer.name = OptimizerName::Sgd;
  options.optimizer.momentum = momentum;
  options.optimizer.learning_rate = 0.3;
  return options;
}

TEST(PipeDream, UpdatesByTheGradientOfTheVersionsThatItSays) {
  expect_equals_by_hand(asynchronous(3, PipelineSchedule::PipeDream, 5));
  expect_equals_by_hand(with_sgd(asynchronous(2, PipelineSchedule::PipeDream, 3), 0.5));
  expect_equals_by_hand(with_sgd(asynchronous(4, PipelineSchedule::PipeDream, 6), 0.5));
}

TEST(PipeDream2BW, DelaysEveryUpdateByOne) {
  expect_equals_by_hand(asynchronous(3, PipelineSchedule::PipeDream2BW, 6));
  expect_equals_by_hand(with_sgd(asynchronous(2, PipelineSchedule::PipeDream2BW, 6), 0));
}

TEST(PipeDream, WorksInsideEveryOtherSplitOfAStage) {
  CompileOptions replicated = with_sgd(asynchronous(2, PipelineSchedule::PipeDream, 4), 0);
  replicated.parallel.layout.dp = 2;
  expect_equals_by_hand(replicated);
  CompileOptions sliced = with_sgd(asynchronous(2, PipelineSchedule::PipeDream2BW, 4), 0);
  sliced.parallel.layout.dp = 2;
  sliced.parallel.zero = 1;
  expect_equals_by_hand(sliced);
  CompileOptions cut = with_sgd(asynchronous(2, PipelineSchedule::PipeDream, 4), 0);
  cut.parallel.layout.tp = 2;
  cut.parallel.sequence_parallel = true;
  cut.parallel.recompute = Recompute::Full;
  expect_equals_by_hand(cut);
  CompileOptions contexts = with_sgd(asynchronous(2, PipelineSchedule::PipeDream2BW, 4), 0);
  contexts.parallel.layout.cp = 2;
  expect_equals_by_hand(contexts);
  CompileOptions experts = with_sgd(asynchronous(2, PipelineSchedule::PipeDream, 4), 0);
  experts.model = test::tiny_mixtral(4, 2);
  experts.model.layers = kLayers;
  experts.model.balance_loss = experts.model.z_loss = experts.model.balance_bias = 0;
  experts.parallel.layout.dp = experts.parallel.layout.ep = 2;
  expect_equals_by_hand(experts);
}

}  // namespace
}  // namespace sw
