#include "cli/resolve.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "lower/lower.hpp"

namespace sw {
namespace {

class Resolver {
 public:
  Resolver(RunOptions& options, const ResolveContext& context) : o_(options), context_(context) {}

  void run() {
    model();
    data();
    duration();
    head();
    layout();
    parallel();
    batch();
    optimizer();
  }

 private:
  [[nodiscard]] bool given(const char* path) const { return context_.given.contains(path); }

  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    throw ConfigError(fmt::format("{}: {}", context_.file,
                                  fmt::format(format, std::forward<Arguments>(arguments)...)));
  }

  void model() const {
    std::vector<std::string_view> set;
    if (!o_.model.preset.empty()) {
      set.push_back("model.preset");
    }
    if (!o_.model.path.empty()) {
      set.push_back("model.path");
    }
    if (!o_.model.config.empty()) {
      set.push_back("[model.config]");
    }
    if (set.empty()) {
      refuse("no model; set one of model.preset, model.path and [model.config]");
    }
    if (set.size() > 1) {
      refuse("{} contradict each other; keep one", fmt::join(set, " and "));
    }
  }

  void data() const {
    if (o_.data.train.empty()) {
      refuse("data.train names no file; set it, as in data.train = [\"corpus/*.txt\"]");
    }
    if (o_.data.validation_every > 0 && o_.data.validation.empty()) {
      refuse("data.validation_every = {} but data.validation names no file; set both or neither",
             o_.data.validation_every);
    }
    if (!o_.data.validation.empty() && !given("data.validation_every")) {
      refuse(
          "data.validation is set but nothing says when to use it; set data.validation_every "
          "(0 = never)");
    }
  }

  void duration() const {
    TrainOptions& train = o_.train;
    if (train.epochs > 0 && !given("train.steps")) {
      train.steps = 0;
    }
    if (train.steps > 0 && train.epochs > 0) {
      refuse("train.steps = {} and train.epochs = {} contradict each other; set one of them to 0",
             train.steps, train.epochs);
    }
    if (train.steps == 0 && train.epochs == 0) {
      refuse("train.steps = 0 and train.epochs = 0; set one of them");
    }
  }

  void head() const {
    const std::int64_t chunk = o_.train.head_chunk;
    if (chunk % kHeadChunkMultiple != 0) {
      refuse("train.head_chunk = {} is no multiple of {}; use {}", chunk, kHeadChunkMultiple,
             round_up(std::max<std::int64_t>(chunk, 1), kHeadChunkMultiple));
    }
  }

  void layout() const {
    Layout& layout = o_.parallel.layout;
    const int world = context_.world;
    const int others = layout.pp * layout.cp * layout.tp;
    if (layout.dp == 0) {
      if (world == 0) {
        refuse(
            "parallel.dp = 0 takes what is left of the world, and nothing says how large that "
            "is; give the number of ranks or set parallel.dp");
      }
      if (world % others != 0) {
        refuse(
            "parallel.dp = 0: {} ranks cannot be shared out over pp x cp x tp = {} x {} x {} = "
            "{}; use a multiple of {} ranks",
            world, layout.pp, layout.cp, layout.tp, others, others);
      }
      layout.dp = world / others;
    }
    const std::int64_t product = std::int64_t{layout.dp} * others;
    if (world != 0 && product != world) {
      refuse(
          "pp x dp x cp x tp = {} x {} x {} x {} = {} ranks, but {} were asked for; set "
          "parallel.dp = 0 to take what is left, or change one of them",
          layout.pp, layout.dp, layout.cp, layout.tp, product, world);
    }
    check_nests("ep", layout.ep, {{"cp", layout.cp}});
    check_nests("zero_group", o_.parallel.zero_group, {{"cp", layout.cp}, {"ep", layout.ep}});
  }

  /// A key that says how many neighbours of the data-parallel ranks share something: one divides
  /// the other of any two of them.
  void check_nests(const char* key, int ranks,
                   const std::vector<std::pair<const char*, int>>& others) const {
    const Layout& layout = o_.parallel.layout;
    const int all = layout.dp * layout.cp;
    const auto nest = [](int a, int b) { return a % b == 0 || b % a == 0; };
    const auto fits = [&](int count) {
      return all % count == 0 && std::all_of(others.begin(), others.end(), [&](const auto& other) {
               return nest(count, other.second);
             });
    };
    if (ranks == 0 || fits(ranks)) {
      return;
    }
    std::vector<std::string> nearest;
    for (int count = std::min(ranks, all); count > 1 && nearest.empty(); --count) {
      if (fits(count)) {
        nearest.push_back(fmt::format("{} = {}", key, count));
      }
    }
    for (int count = ranks; count <= all; ++count) {
      if (fits(count)) {
        nearest.push_back(fmt::format("{} = {}", key, count));
        break;
      }
    }
    const std::string way_out =
        nearest.empty() ? "leave it out" : fmt::format("use {}", fmt::join(nearest, " or "));
    if (all % ranks != 0) {
      refuse("parallel.{} = {} does not divide dp x cp = {} x {} = {}; {}", key, ranks, layout.dp,
             layout.cp, all, way_out);
    }
    const auto other = std::find_if(others.begin(), others.end(), [&](const auto& candidate) {
      return !nest(ranks, candidate.second);
    });
    refuse(
        "parallel.{} = {} and parallel.{} = {} cut dp x cp = {} x {} ranks in groups that do not "
        "nest; {}",
        key, ranks, other->first, other->second, layout.dp, layout.cp, way_out);
  }

  void parallel() const {
    ParallelOptions& parallel = o_.parallel;
    if (!given("parallel.reduce_gradients")) {
      parallel.reduce_gradients =
          parallel.zero >= 2 ? ReduceGradients::MicroBatch : ReduceGradients::Window;
    }
    pipeline();
    const int group = parallel.layout.dp * parallel.layout.cp;
    if (parallel.offload == Offload::Parameters && group > 1 &&
        (parallel.zero == 1 || parallel.zero == 2)) {
      refuse(
          "parallel.offload = \"parameters\" with parallel.zero = {}: ranks that keep whole "
          "weights "
          "on the host would gather what they updated there; use zero = 3 (or 0)",
          parallel.zero);
    }
    if (parallel.offload == Offload::None && parallel.offload_gb_per_s > 0) {
      refuse("parallel.offload_gb_per_s = {} with parallel.offload = \"none\": nothing is copied",
             parallel.offload_gb_per_s);
    }
    if (parallel.layout.ep == 1 && parallel.expert_buffer != ParallelOptions{}.expert_buffer) {
      refuse("parallel.expert_buffer = {} is room for slots that travel; without ep none do",
             parallel.expert_buffer);
    }
    const bool cuts_tokens = parallel.sequence_parallel && parallel.layout.tp > 1;
    if (parallel.layout.ep > 1 && cuts_tokens && !parallel.gather_before_dispatch) {
      refuse(
          "parallel.ep = {} with sequence_parallel and tp = {}: tokens are gathered over tp before "
          "they go to their experts; say so with gather_before_dispatch = true, or set "
          "sequence_parallel = false",
          parallel.layout.ep, parallel.layout.tp);
    }
    if (parallel.gather_before_dispatch && (parallel.layout.ep == 1 || !cuts_tokens)) {
      refuse(
          "parallel.gather_before_dispatch = true is for ep and tp above 1 with sequence_parallel; "
          "leave it out");
    }
    if (parallel.zero_group != 0 && (parallel.zero_group == 1 || parallel.zero == 0)) {
      refuse(
          "parallel.zero_group = {} with parallel.zero = {} shares nothing out; use a group of at "
          "least 2 and a level of at least 1, or zero_group = 0",
          parallel.zero_group, parallel.zero);
    }
  }

  void pipeline() const {
    const ParallelOptions& parallel = o_.parallel;
    if (parallel.virtual_stages > 1 && parallel.pipeline != PipelineSchedule::Interleaved &&
        parallel.pipeline_file.empty()) {
      refuse(
          "parallel.virtual_stages = {} needs parallel.pipeline = \"interleaved\" or a "
          "parallel.pipeline_file",
          parallel.virtual_stages);
    }
    if (!parallel.pipeline_file.empty() && given("parallel.pipeline")) {
      refuse(
          "parallel.pipeline and parallel.pipeline_file contradict each other; keep the one that "
          "is meant");
    }
    if (!parallel.pipeline_file.empty() && parallel.layout.pp == 1) {
      refuse("parallel.pipeline_file needs parallel.pp of at least 2");
    }
  }

  void batch() const {
    TrainOptions& train = o_.train;
    const std::int64_t dp = o_.parallel.layout.dp;
    const std::int64_t rows = train.micro_batch * dp;
    if (train.global_batch % rows == 0) {
      train.accumulation = train.global_batch / rows;
      return;
    }
    std::vector<std::string> repairs;
    if (const std::int64_t below = train.global_batch / rows * rows; below > 0) {
      repairs.push_back(fmt::format("train.global_batch = {}", below));
    }
    repairs.push_back(
        fmt::format("train.global_batch = {}", (train.global_batch / rows + 1) * rows));
    if (train.global_batch % dp == 0) {
      repairs.push_back(fmt::format("train.micro_batch = {}",
                                    largest_divisor(train.global_batch / dp, train.micro_batch)));
    }
    if (train.global_batch % train.micro_batch == 0) {
      repairs.push_back(fmt::format("parallel.dp = {}",
                                    largest_divisor(train.global_batch / train.micro_batch, dp)));
    }
    refuse(
        "train.global_batch = {} must equal train.micro_batch x parallel.dp x accumulation = {} "
        "x {} x accumulation = {} x accumulation, and no whole accumulation does it; set {}",
        train.global_batch, train.micro_batch, dp, rows, fmt::join(repairs, ", or "));
  }

  /// The largest divisor of `value` that is at most `limit`.
  static std::int64_t largest_divisor(std::int64_t value, std::int64_t limit) {
    std::int64_t divisor = std::min(value, limit);
    while (value % divisor != 0) {
      --divisor;
    }
    return divisor;
  }

  void optimizer() const {
    const OptimizerOptions& optimizer = o_.optimizer;
    if (optimizer.name == OptimizerName::AdamW && optimizer.momentum != 0) {
      refuse(
          "optimizer.momentum = {} is for sgd, and optimizer.name is adamw; its momentum is the "
          "first of optimizer.betas",
          optimizer.momentum);
    }
    if (optimizer.name == OptimizerName::Sgd) {
      for (const char* key : {"optimizer.betas", "optimizer.epsilon"}) {
        if (given(key) && (optimizer.betas != OptimizerOptions{}.betas ||
                           optimizer.epsilon != OptimizerOptions{}.epsilon)) {
          refuse("{} is for adamw, and optimizer.name is sgd; remove it", key);
        }
      }
    }
    if (optimizer.loss_scale != 0 && o_.train.precision != DType::Float16) {
      refuse("optimizer.loss_scale = {} is for float16, and train.precision is {}; remove it",
             optimizer.loss_scale, to_text(o_.train.precision));
    }
    if (optimizer.decay_steps != 0 && optimizer.decay_steps < optimizer.warmup_steps) {
      refuse(
          "optimizer.decay_steps = {} is less than optimizer.warmup_steps = {}, which it includes",
          optimizer.decay_steps, optimizer.warmup_steps);
    }
    if (optimizer.minimum_learning_rate > optimizer.learning_rate) {
      refuse("optimizer.minimum_learning_rate = {} is above optimizer.learning_rate = {}",
             optimizer.minimum_learning_rate, optimizer.learning_rate);
    }
  }

  RunOptions& o_;
  const ResolveContext& context_;
};

}  // namespace

void resolve(RunOptions& options, const ResolveContext& context) {
  Resolver(options, context).run();
}

}  // namespace sw
