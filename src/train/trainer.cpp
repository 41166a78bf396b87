#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/model_weights.hpp"
#include "checkpoint/writer.hpp"
#include "data/balance.hpp"
#include "train/account.hpp"
#include "train/launch.hpp"
#include "train/metrics.hpp"
#include "train/session.hpp"
#include "train/tensorboard.hpp"

namespace sw {
namespace {

constexpr const char* kDroppedSamplesKey = "dropped_samples";

/// What the ranks tell each other after a step.
struct RankStep {
  double seconds = 0;
  double communication_seconds = 0;
  double exposed_communication_seconds = 0;
  double wait_seconds = 0;
  double peak_bytes = 0;
  double stop = 0;
  double non_finite = -1;  ///< place of the first weight with a non-finite gradient
  double staleness = 0;    ///< most updates between a gradient's weights and those that it changed
};
constexpr std::int64_t kWords = sizeof(RankStep) / sizeof(double);

/// All ranks' numbers, exchanged at a step boundary: control traffic, in the part of the window
/// that no Program has.
class StepExchange {
 public:
  StepExchange(World& world, std::span<std::byte> memory) : ranks_(world.size()), memory_(memory) {
    if (ranks_ == 1) {
      return;
    }
    std::vector<int> members;
    for (int rank = 0; rank < ranks_; ++rank) {
      members.push_back(rank);
    }
    communicator_ = world.make_communicator("control", members);
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.dtype = DType::Float64;
    gather.name = "step boundary";
    Segment segment;
    segment.output = memory_.data();
    segment.input = memory_.data() + static_cast<std::size_t>(world.rank()) * sizeof(RankStep);
    segment.length = ranks_;
    segment.trailing = kWords;
    gather.segments = {segment};
    prepared_ = communicator_->prepare(gather);
    mine_ = segment.input;
  }

  std::vector<RankStep> exchange(const RankStep& mine) {
    std::vector<RankStep> all(static_cast<std::size_t>(ranks_), mine);
    if (prepared_ != nullptr) {
      std::memcpy(mine_, &mine, sizeof(mine));
      prepared_->run();
      std::memcpy(all.data(), memory_.data(), all.size() * sizeof(RankStep));
    }
    return all;
  }

  static std::int64_t bytes(int ranks) {
    return ranks * static_cast<std::int64_t>(sizeof(RankStep));
  }

 private:
  int ranks_;
  std::span<std::byte> memory_;
  std::byte* mine_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PreparedCollective> prepared_;
};

/// What the launcher has tokenized into the run folder, and read to the last byte.
Corpus map_corpus(const TrainingPlan& plan, const char* key,
                  const std::vector<std::string>& patterns, std::int64_t vocabulary) {
  return Corpus::load(plan.options.data, {.key = key,
                                          .patterns = patterns,
                                          .base = plan.run_folder,
                                          .vocabulary = vocabulary,
                                          .verify = Verify::Structure});
}

WriterOptions writer_options(const TrainingPlan& plan, World& world) {
  WriterOptions writer;
  writer.folder = RunFolder{plan.run_folder}.checkpoints();
  writer.run = plan.run_id;
  writer.session = plan.session_id;
  writer.rank = world.rank();
  writer.ranks = world.size();
  writer.keep = plan.options.checkpoint.keep;
  writer.background = plan.options.checkpoint.background;
  writer.aborted = [&world] { return !world.aborted().empty(); };
  return writer;
}

/// The training loop of one rank.
class RankTrainer {
 public:
  RankTrainer(World& world, const TrainingPlan& plan)
      : world_(world),
        plan_(plan),
        compilation_(compile_options(plan.options)),
        session_(compilation_, world, StepExchange::bytes(world.size())),
        exchange_(world, session_.control()),
        corpus_(map_corpus(plan, "data.train", plan.options.data.train,
                           compilation_.options().model.vocabulary)),
        sampler_(corpus_.samples(), plan.options.train.global_batch, plan.options.train.seed,
                 plan.options.data.last_window),
        writer_(real_files(), writer_options(plan, world)),
        steps_(plan.options.train.steps) {
    if (!plan.options.data.validation.empty()) {
      validation_ = map_corpus(plan, "data.validation", plan.options.data.validation,
                               compilation_.options().model.vocabulary);
    }
    start();
  }

  int run() {
    std::optional<Progress> progress;
    std::optional<StepFile> metrics;
    std::optional<EventsFile> events;
    if (world_.rank() == 0) {
      progress.emplace(state_.step, steps_);
      metrics.emplace(real_files(), plan_.run_folder / "metrics.jsonl", state_.step);
      events.emplace(real_files(), plan_.run_folder);
      if (plan_.options.data.log_samples) {
        samples_file_.emplace(real_files(), plan_.run_folder / "samples.jsonl", state_.step);
      }
    }
    bool stopped = false;
    while (state_.step < steps_ && !stopped) {
      const StepMetrics line = step();
      stopped = stop_;
      if (metrics.has_value()) {
        metrics->add(to_json_line(line));
        events->add(line);
        progress->show(line);
      }
      if (stopped || due(plan_.options.checkpoint.every) ||
          (state_.step == steps_ && plan_.options.checkpoint.every > 0)) {
        save();
      }
    }
    writer_.wait();
    if (progress.has_value()) {
      progress->finish();
    }
    write_rank_account(RunFolder{plan_.run_folder}.account_of(world_.rank()), session_,
                       state_.step - plan_.first_step);
    return stopped ? kStopped : kDone;
  }

 private:
  void start() {
    if (!plan_.checkpoint.empty()) {
      const CheckpointReader reader(plan_.checkpoint);
      session_.load_checkpoint(reader);
      state_ = reader.state();
      return;
    }
    state_.seed = plan_.options.train.seed;
    // What generating and converting need to know of the model.
    const CompileOptions& compile = compilation_.options();
    state_.extra[std::string(kModelConfigKey)] =
        parse_json(to_json(compile.model, compile.precision), "config.json");
    if (compile.model.balance_bias > 0) {
      state_.extra[std::string(kBalanceBiasKey)] = compile.model.balance_bias;
    }
    state_.extra["tokenizer"] = plan_.options.data.tokenizer;
    state_.extra[kDataFingerprintKey] = corpus_.fingerprint();
    if (!plan_.options.model.path.empty()) {
      session_.load_model_folder(plan_.options.model.path);
    } else {
      session_.initialize(plan_.options.train.seed);
    }
  }

  /// Samples that the position has passed over without using them (data.last_window = "drop").
  [[nodiscard]] std::int64_t dropped_samples() const {
    return state_.extra.value(kDroppedSamplesKey, std::int64_t{0});
  }

  [[nodiscard]] bool due(std::int64_t every) const { return every > 0 && state_.step % every == 0; }

  /// The window's step, or its being passed over; then what all ranks know of it.
  StepMetrics step() {
    const RunOptions& options = plan_.options;
    Window window = sampler_.window(state_.consumed_samples);
    balance(window, corpus_, options.data.balance,
            options.parallel.layout.dp * options.train.accumulation);
    std::int64_t valid = 0;
    for (const std::int64_t sample : window.samples) {
      valid += corpus_.valid_tokens(sample);
    }
    StepMetrics line;
    const StepSettings settings =
        step_settings(compilation_, corpus_, window, steps_ * compilation_.updates_per_window(),
                      state_.updates, state_.seed, state_.step);
    line.learning_rate = settings.learning_rate;
    StepResult result;
    if (valid == 0) {
      line.skipped = "no valid token";
    } else {
      result = session_.step(corpus_, window, settings);
      line.loss = result.loss;
      line.balance_loss = result.balance_loss;
      line.z_loss = result.z_loss;
      if (!result.expert_load.empty()) {
        line.experts = expert_load(result.expert_load, compilation_.options().model.experts,
                                   plan_.options.parallel.layout.ep);
        const ModelConfig& model = compilation_.options().model;
        if (model.expert_capacity > 0) {
          const auto layers = static_cast<std::int64_t>(result.expert_load.size()) / model.experts;
          line.experts->dropped = result.valid_tokens * model.experts_per_token * layers -
                                  std::accumulate(result.expert_load.begin(),
                                                  result.expert_load.end(), std::int64_t{0});
        }
      }
      line.gradient_norm = result.gradient_norm;
      if (!result.applied) {
        line.skipped = std::isfinite(result.loss) ? "non-finite gradients" : "non-finite loss";
        non_finite_ = session_.first_non_finite();
      }
    }
    count(window, line.skipped.empty() ? result.updates : 0);
    log_samples(window);
    describe(window, valid, result, line);
    refuse_lost_stages(line);
    if (validation_.has_value() && due(plan_.options.data.validation_every)) {
      validate(line);
    }
    refuse_endless_skipping(line);
    return line;
  }

  void count(const Window& window, std::int64_t updates) {
    ++state_.step;
    state_.consumed_samples = window.next;
    state_.extra[kDroppedSamplesKey] = dropped_samples() + window.dropped;
    if (updates > 0) {
      state_.updates += updates;
      state_.skipped_in_a_row = 0;
    } else {
      ++state_.skipped_steps;
      ++state_.skipped_in_a_row;
    }
  }

  void log_samples(const Window& window) {
    if (samples_file_.has_value()) {
      Json line;
      line["step"] = state_.step;
      line["epoch"] = window.epoch;
      line["samples"] = window.samples;
      samples_file_->add(line.dump());
    }
  }

  void describe(const Window& window, std::int64_t valid, const StepResult& result,
                StepMetrics& line) {
    const RankStep mine{result.seconds,
                        result.communication_seconds,
                        result.exposed_communication_seconds,
                        result.wait_seconds,
                        static_cast<double>(session_.planned_peak()),
                        stop_requested() ? 1.0 : 0.0,
                        static_cast<double>(std::exchange(non_finite_, -1)),
                        valid > 0 ? static_cast<double>(most_stale(session_.version_uses())) : 0};
    const std::vector<RankStep> all = exchange_.exchange(mine);
    const auto largest = [&](double RankStep::*member) {
      double value = 0;
      for (const RankStep& rank : all) {
        value = std::max(value, rank.*member);
      }
      return value;
    };
    line.step = state_.step;
    line.tokens =
        static_cast<std::int64_t>(window.samples.size()) * plan_.options.data.sequence_length;
    line.valid_tokens = valid;
    line.samples = window.consumed;
    line.unique_samples = static_cast<std::int64_t>(unique(window).size());
    line.consumed_samples = state_.consumed_samples - dropped_samples();
    line.skipped_steps = state_.skipped_steps;
    line.step_seconds = largest(&RankStep::seconds);
    line.tokens_per_second =
        line.step_seconds > 0 ? static_cast<double>(valid) / line.step_seconds : 0;
    if (plan_.peak_flops_per_s > 0 && line.step_seconds > 0) {
      line.mfu = compilation_.model_flops_per_window() /
                 (line.step_seconds * plan_.peak_flops_per_s * world_.size());
    }
    line.communication_seconds = largest(&RankStep::communication_seconds);
    line.exposed_communication_seconds = largest(&RankStep::exposed_communication_seconds);
    line.wait_seconds = largest(&RankStep::wait_seconds);
    line.peak_bytes = static_cast<std::int64_t>(largest(&RankStep::peak_bytes));
    stop_ = largest(&RankStep::stop) > 0;
    if (compilation_.asynchronous()) {
      line.staleness.assign(static_cast<std::size_t>(plan_.options.parallel.layout.pp), 0);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        int& stage =
            line.staleness[static_cast<std::size_t>(compilation_.stage(static_cast<int>(rank)))];
        stage = std::max(stage, static_cast<int>(all[rank].staleness));
      }
    }
    name_non_finite(all, line);
    // The slowest rank is the one that waited least for the others.
    const auto slowest = std::min_element(
        all.begin(), all.end(),
        [](const RankStep& a, const RankStep& b) { return a.wait_seconds < b.wait_seconds; });
    line.slowest_rank = static_cast<int>(slowest - all.begin());
  }

  /// "non-finite gradients: model.norm.weight": the first weight over all ranks.
  void name_non_finite(const std::vector<RankStep>& all, StepMetrics& line) const {
    int first = -1;
    for (const RankStep& rank : all) {
      const auto place = static_cast<int>(rank.non_finite);
      first = place >= 0 && (first < 0 || place < first) ? place : first;
    }
    if (first >= 0) {
      const Graph& graph = compilation_.model().graph;
      line.skipped += ": " + graph.value(graph.parameters()[static_cast<std::size_t>(first)]).name;
    }
  }

  static std::set<std::int64_t> unique(const Window& window) {
    std::set<std::int64_t> ids(window.samples.begin(), window.samples.end());
    ids.erase(-1);
    return ids;
  }

  /// Every validation sample once, in order, in groups as large as a micro-batch.
  void validate(StepMetrics& line) {
    const std::int64_t rows = compilation_.rows_per_micro_batch();
    double sum = 0;
    std::int64_t tokens = 0;
    for (std::int64_t first = 0; first < validation_->samples(); first += rows) {
      std::vector<std::int64_t> samples;
      for (std::int64_t row = 0; row < rows; ++row) {
        samples.push_back(first + row < validation_->samples() ? first + row : -1);
      }
      const StepResult result = session_.evaluate(*validation_, samples);
      sum += result.loss * static_cast<double>(result.valid_tokens);
      tokens += result.valid_tokens;
    }
    line.validation_tokens = tokens;
    if (tokens > 0) {
      line.validation_loss = sum / static_cast<double>(tokens);
    }
  }

  /// What one stage skipped, others may have done.
  void refuse_lost_stages(const StepMetrics& line) const {
    if (compilation_.asynchronous() && !line.skipped.empty() && line.loss.has_value()) {
      throw DataError(
          fmt::format("step {}: {}: stages of an asynchronous pipeline have updated by then and "
                      "cannot take it back; go on from a checkpoint with a lower learning rate",
                      line.step, line.skipped));
    }
  }

  void refuse_endless_skipping(const StepMetrics& line) const {
    if (state_.skipped_in_a_row > plan_.options.train.max_skipped) {
      throw DataError(fmt::format(
          "step {}: {} steps in a row were skipped ({}), more than train.max_skipped = {}; lower "
          "the learning rate, "
          "or look at the data",
          state_.step, state_.skipped_in_a_row, line.skipped, plan_.options.train.max_skipped));
    }
  }

  void save() { writer_.save(state_, session_.owned_state()); }

  World& world_;
  const TrainingPlan& plan_;
  Compilation compilation_;
  Session session_;
  StepExchange exchange_;
  Corpus corpus_;
  std::optional<Corpus> validation_;
  Sampler sampler_;
  CheckpointWriter writer_;
  TrainingState state_;
  std::int64_t steps_;
  std::optional<StepFile> samples_file_;
  bool stop_ = false;
  int non_finite_ = -1;
};

}  // namespace

int train_rank(World& world, const TrainingPlan& plan) { return RankTrainer(world, plan).run(); }

}  // namespace sw
