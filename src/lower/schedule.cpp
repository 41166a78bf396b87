#include "lower/schedule.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.hpp"

namespace sw {
namespace {

using Kind = PipelineAction::Kind;

std::vector<PipelineAction> gpipe(int segment, int micro_batches) {
  std::vector<PipelineAction> actions;
  for (const Kind kind : {Kind::Forward, Kind::Backward}) {
    for (int m = 0; m < micro_batches; ++m) {
      actions.push_back({kind, segment, m});
    }
  }
  return actions;
}

/// `ahead` forwards, then forward and backward in turn, then the backwards that are left.
std::vector<PipelineAction> one_forward_one_backward(int ahead,
                                                     const std::vector<PipelineAction>& forwards,
                                                     const std::vector<PipelineAction>& backwards) {
  std::vector<PipelineAction> actions;
  const std::size_t first = std::min<std::size_t>(static_cast<std::size_t>(ahead), forwards.size());
  actions.assign(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(first));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (first + i < forwards.size()) {
      actions.push_back(forwards[first + i]);
    }
    actions.push_back(backwards[i]);
  }
  return actions;
}

/// 1f1b with halved backwards: stage s lets s weight gradients wait, and has them to do while later
/// stages' backwards are on their way.
std::vector<PipelineAction> zero_bubble(int stages, int stage, int micro_batches) {
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  std::vector<PipelineAction> actions;
  for (int m = 0; m < ahead; ++m) {
    actions.push_back({Kind::Forward, stage, m});
  }
  for (int m = 0; m < micro_batches + stage; ++m) {
    if (ahead + m < micro_batches) {
      actions.push_back({Kind::Forward, stage, ahead + m});
    }
    if (m < micro_batches) {
      actions.push_back({Kind::InputGradient, stage, m});
    }
    if (m >= stage) {
      actions.push_back({Kind::WeightGradient, stage, m - stage});
    }
  }
  return actions;
}

/// Groups of P micro-batches go through a stage's chunks in turn; backwards through the chunks from
/// the last.
std::vector<PipelineAction> in_groups(const Stages& stages, int stage, int micro_batches,
                                      Kind kind) {
  std::vector<PipelineAction> actions;
  for (int group = 0; group < micro_batches; group += stages.stages) {
    for (int c = 0; c < stages.chunks; ++c) {
      const int chunk = kind == Kind::Forward ? c : stages.chunks - 1 - c;
      for (int m = group; m < std::min(group + stages.stages, micro_batches); ++m) {
        actions.push_back({kind, stages.segment_of(stage, chunk), m});
      }
    }
  }
  return actions;
}

/// What has happened so far, by time in which every action takes one unit.
class Progress {
 public:
  explicit Progress(const Stages& stages) : stages_(stages) {}

  /// When `action` may start at the earliest; -1 when something that it needs has not been done.
  [[nodiscard]] int ready(const PipelineAction& action) const {
    const int last = stages_.segments() - 1;
    const auto after = [&](Kind kind, int segment) {
      const auto found = ended_.find({kind, segment, action.micro_batch});
      return found == ended_.end() ? -1 : found->second;
    };
    switch (action.kind) {
      case Kind::Forward:
        return action.segment == 0 ? 0 : after(Kind::Forward, action.segment - 1);
      case Kind::WeightGradient:
        return after(Kind::InputGradient, action.segment);
      case Kind::Backward:
      case Kind::InputGradient:
        break;
    }
    const int own = after(Kind::Forward, action.segment);
    if (own < 0 || action.segment == last) {
      return own;
    }
    const int next = std::max(after(Kind::Backward, action.segment + 1),
                              after(Kind::InputGradient, action.segment + 1));
    return next < 0 ? -1 : std::max(own, next);
  }
  void end(const PipelineAction& action, int time) {
    ended_[{action.kind, action.segment, action.micro_batch}] = time;
  }
  [[nodiscard]] bool done(const PipelineAction& action) const {
    return ended_.contains({action.kind, action.segment, action.micro_batch});
  }

 private:
  const Stages& stages_;
  std::map<std::tuple<Kind, int, int>, int> ended_;
};

/// The V order, by a clock on which forward, input gradient and weight gradient take one
/// unit each: at every tick a stage takes the input gradient that is ready, else a forward while it
/// holds fewer than `most` micro-batches, else a weight gradient.
class ZeroBubbleV {
 public:
  ZeroBubbleV(const Stages& stages, int micro_batches)
      : stages_(stages), micro_batches_(micro_batches), progress_(stages) {
    result_.resize(static_cast<std::size_t>(stages.stages));
    live_.resize(result_.size(), 0);
  }

  PipelineOrder run() {
    const std::size_t all = 3U * static_cast<std::size_t>(stages_.chunks * micro_batches_);
    const auto unfinished = [&](const auto& actions) { return actions.size() < all; };
    for (int time = 0; std::any_of(result_.begin(), result_.end(), unfinished); ++time) {
      SW_CHECK(time < 8 * (static_cast<int>(all) + stages_.segments()),
               "a zero-bubble order of {} stages and {} micro-batches does not end", stages_.stages,
               micro_batches_);
      std::vector<std::pair<int, PipelineAction>> taken;
      for (int stage = 0; stage < stages_.stages; ++stage) {
        if (const auto action = next(stage, time)) {
          taken.emplace_back(stage, *action);
        }
      }
      for (const auto& [stage, action] : taken) {
        progress_.end(action, time + 1);
        live_[static_cast<std::size_t>(stage)] += action.kind == Kind::Forward          ? 1
                                                  : action.kind == Kind::WeightGradient ? -1
                                                                                        : 0;
        result_[static_cast<std::size_t>(stage)].push_back(action);
      }
    }
    return std::move(result_);
  }

 private:
  /// Micro-batches, counted by chunk, that a stage may hold: the memory of 1f1b's first stage.
  [[nodiscard]] int most() const { return stages_.chunks * stages_.stages; }

  std::optional<PipelineAction> next(int stage, int time) {
    for (const Kind kind : {Kind::InputGradient, Kind::Forward, Kind::WeightGradient}) {
      if (kind == Kind::Forward && live_[static_cast<std::size_t>(stage)] >= most()) {
        continue;
      }
      for (int c = stages_.chunks - 1; c >= 0; --c) {
        const int chunk = kind == Kind::WeightGradient ? stages_.chunks - 1 - c : c;
        const auto action = first_left(kind, stages_.segment_of(stage, chunk));
        if (action.has_value()) {
          const int ready = progress_.ready(*action);
          if (ready >= 0 && ready <= time) {
            return action;
          }
        }
      }
    }
    return std::nullopt;
  }

  /// The next micro-batch of a segment, in order.
  [[nodiscard]] std::optional<PipelineAction> first_left(Kind kind, int segment) const {
    for (int m = 0; m < micro_batches_; ++m) {
      const PipelineAction action{kind, segment, m};
      if (!progress_.done(action)) {
        return action;
      }
    }
    return std::nullopt;
  }

  const Stages& stages_;
  int micro_batches_;
  Progress progress_;
  PipelineOrder result_;
  std::vector<int> live_;
};

}  // namespace

PipelineOrder pipeline_order(PipelineSchedule schedule, const Stages& stages, int micro_batches) {
  if (schedule == PipelineSchedule::ZeroBubbleV) {
    return ZeroBubbleV(stages, micro_batches).run();
  }
  const bool interleaved = schedule == PipelineSchedule::Interleaved;
  if (interleaved && micro_batches % stages.stages != 0) {
    throw ConfigError(
        fmt::format("parallel.pipeline = \"interleaved\" takes micro-batches in groups of "
                    "parallel.pp = {}, and a step has {}: change train.micro_batch or "
                    "train.global_batch",
                    stages.stages, micro_batches));
  }
  PipelineOrder order;
  for (int stage = 0; stage < stages.stages; ++stage) {
    if (schedule == PipelineSchedule::GPipe) {
      order.push_back(gpipe(stage, micro_batches));
      continue;
    }
    if (schedule == PipelineSchedule::ZeroBubble) {
      order.push_back(zero_bubble(stages.stages, stage, micro_batches));
      continue;
    }
    const int behind = stages.stages - 1 - stage;
    const int ahead = interleaved ? 2 * behind + (stages.chunks - 1) * stages.stages : behind;
    order.push_back(
        one_forward_one_backward(ahead, in_groups(stages, stage, micro_batches, Kind::Forward),
                                 in_groups(stages, stage, micro_batches, Kind::Backward)));
  }
  return order;
}

PipelineOrder forward_order(const Stages& stages) {
  PipelineOrder order(static_cast<std::size_t>(stages.stages));
  for (int segment = 0; segment < stages.segments(); ++segment) {
    order[static_cast<std::size_t>(stages.stage_of(segment))].push_back(
        {Kind::Forward, segment, 0});
  }
  return order;
}

namespace {

char letter_of(Kind kind) {
  switch (kind) {
    case Kind::Forward:
      return 'F';
    case Kind::Backward:
      return 'B';
    case Kind::InputGradient:
      return 'I';
    case Kind::WeightGradient:
      break;
  }
  return 'W';
}

std::string word_of(const PipelineAction& action, const Stages& stages) {
  std::string word = fmt::format("{}{}", letter_of(action.kind), action.micro_batch);
  if (stages.chunks > 1) {
    word += fmt::format(".{}", action.segment / stages.stages);
  }
  return word;
}

/// One line of a schedule.
class LineParser {
 public:
  LineParser(std::string_view line, std::string where, const Stages& stages, int stage,
             int micro_batches)
      : line_(line),
        where_(std::move(where)),
        stages_(stages),
        stage_(stage),
        micro_batches_(micro_batches) {}

  std::vector<PipelineAction> run() {
    std::vector<PipelineAction> actions;
    for (skip_spaces(); at_ < line_.size(); skip_spaces()) {
      actions.push_back(action());
    }
    return actions;
  }

 private:
  void skip_spaces() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) {
      ++at_;
    }
  }

  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    throw ConfigError(fmt::format("{}, column {}: {}", where_, at_ + 1,
                                  fmt::format(format, std::forward<Arguments>(arguments)...)));
  }

  PipelineAction action() {
    PipelineAction action;
    switch (line_[at_]) {
      case 'F':
        action.kind = Kind::Forward;
        break;
      case 'B':
        action.kind = Kind::Backward;
        break;
      case 'I':
        action.kind = Kind::InputGradient;
        break;
      case 'W':
        action.kind = Kind::WeightGradient;
        break;
      default:
        refuse("an action begins with F, B, I or W");
    }
    ++at_;
    action.micro_batch = number("micro-batch", micro_batches_);
    int chunk = 0;
    if (at_ < line_.size() && line_[at_] == '.') {
      ++at_;
      chunk = number("chunk", stages_.chunks);
    }
    if (at_ < line_.size() && line_[at_] != ' ' && line_[at_] != '\t' && line_[at_] != '\r') {
      refuse("a space stands between actions");
    }
    action.segment = stages_.segment_of(stage_, chunk);
    return action;
  }

  int number(const char* what, int limit) {
    const std::size_t begin = at_;
    int value = 0;
    while (at_ < line_.size() && line_[at_] >= '0' && line_[at_] <= '9' && value < limit) {
      value = 10 * value + (line_[at_] - '0');
      ++at_;
    }
    if (at_ == begin || value >= limit) {
      refuse("a {} is a number below {}", what, limit);
    }
    return value;
  }

  std::string_view line_;
  std::string where_;
  const Stages& stages_;
  int stage_;
  int micro_batches_;
  std::size_t at_ = 0;
};

}  // namespace

PipelineOrder parse_pipeline(std::string_view text, const std::string& where, const Stages& stages,
                             int micro_batches) {
  PipelineOrder order;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    const auto stage = static_cast<int>(order.size());
    if (stage == stages.stages) {
      throw ConfigError(fmt::format("{}, line {}: more lines than parallel.pp = {} stages", where,
                                    number, stages.stages));
    }
    order.push_back(
        LineParser(line, fmt::format("{}, line {}", where, number), stages, stage, micro_batches)
            .run());
  }
  if (static_cast<int>(order.size()) != stages.stages) {
    throw ConfigError(fmt::format("{}: {} lines for parallel.pp = {} stages", where, order.size(),
                                  stages.stages));
  }
  check_order(order, stages, micro_batches, where);
  return order;
}

std::string to_text(const PipelineOrder& order, const Stages& stages) {
  std::string text;
  for (const std::vector<PipelineAction>& actions : order) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      text += (i == 0 ? "" : " ") + word_of(actions[i], stages);
    }
    text += '\n';
  }
  return text;
}

void check_order(const PipelineOrder& order, const Stages& stages, int micro_batches,
                 const std::string& where) {
  std::map<std::tuple<int, int>, std::map<Kind, int>> count;  // by segment and micro-batch
  for (const std::vector<PipelineAction>& actions : order) {
    for (const PipelineAction& action : actions) {
      if (++count[{action.segment, action.micro_batch}][action.kind] > 1) {
        throw ConfigError(fmt::format("{}: stage {} does {} twice", where,
                                      stages.stage_of(action.segment), word_of(action, stages)));
      }
    }
  }
  for (int segment = 0; segment < stages.segments(); ++segment) {
    for (int m = 0; m < micro_batches; ++m) {
      std::map<Kind, int>& done = count[{segment, m}];
      const int whole = done[Kind::Backward];
      const int halves = done[Kind::InputGradient] + done[Kind::WeightGradient];
      if (done[Kind::Forward] != 1 || 2 * whole + halves != 2 || (whole == 0 && halves != 2)) {
        throw ConfigError(fmt::format(
            "{}: stage {} must do F{} and either B{} or both I{} and W{} once for chunk {}", where,
            stages.stage_of(segment), m, m, m, m, segment / stages.stages));
      }
    }
  }
  const std::vector<std::vector<TimedAction>> done = unit_times(order, stages);
  std::vector<std::string> stuck;
  for (std::size_t stage = 0; stage < order.size(); ++stage) {
    if (done[stage].size() < order[stage].size()) {
      stuck.push_back(fmt::format("stage {} before {}", stage,
                                  word_of(order[stage][done[stage].size()], stages)));
    }
  }
  if (!stuck.empty()) {
    throw ConfigError(fmt::format("{}: these stages wait for each other for ever: {}", where,
                                  fmt::join(stuck, ", ")));
  }
}

std::vector<std::vector<TimedAction>> unit_times(const PipelineOrder& order, const Stages& stages) {
  Progress progress(stages);
  std::vector<std::vector<TimedAction>> result(order.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < order.size(); ++stage) {
      std::vector<TimedAction>& mine = result[stage];
      while (mine.size() < order[stage].size()) {
        const PipelineAction& action = order[stage][mine.size()];
        const int ready = progress.ready(action);
        if (ready < 0) {
          break;
        }
        const int start = std::max(ready, mine.empty() ? 0 : mine.back().end);
        const int end = start + (action.kind == Kind::Backward ? 2 : 1);
        mine.push_back({action, start, end});
        progress.end(action, end);
        moved = true;
      }
    }
  }
  return result;
}

bool halves_backwards(const PipelineOrder& order) {
  return std::any_of(order.begin(), order.end(), [](const std::vector<PipelineAction>& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const PipelineAction& action) {
      return action.kind == PipelineAction::Kind::WeightGradient;
    });
  });
}

std::vector<int> live_micro_batches(const PipelineOrder& order) {
  std::vector<int> result;
  for (const std::vector<PipelineAction>& actions : order) {
    int live = 0;
    int most = 0;
    for (const PipelineAction& action : actions) {
      live += action.kind == Kind::Forward ? 1 : 0;
      most = std::max(most, live);
      live -= action.kind == Kind::Backward || action.kind == Kind::WeightGradient ? 1 : 0;
    }
    result.push_back(most);
  }
  return result;
}

}  // namespace sw
