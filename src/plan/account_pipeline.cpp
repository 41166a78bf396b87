// Pipeline schedules: how long stages wait, and how many micro-batches they hold.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>

#include "lower/update_rule.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

constexpr std::int64_t kMost = 4096;  ///< stages, micro-batches and chunks that are drawn or listed

struct Sizes {
  std::int64_t stages = 1;
  std::int64_t micro_batches = 1;
  std::int64_t chunks = 1;
};

Sizes sizes_of(const Inputs& in) {
  const Sizes sizes{in.count("stages"), in.count("microbatches"), in.count_or("v", 1)};
  for (const std::int64_t size : {sizes.stages, sizes.micro_batches, sizes.chunks}) {
    if (size > kMost) {
      in.reject(fmt::format("{} is more than {}", size, kMost));
    }
  }
  return sizes;
}

/// Two conventions: the bubble's share of all time (what traces show) and its ratio to the time of
/// the work alone (what papers often quote).
void bubble(const Inputs& in, Outputs& out) {
  const auto [p, m, v] = sizes_of(in);
  const std::int64_t idle = p - 1;
  const std::int64_t all = v * m + p - 1;
  const std::int64_t divisor = std::gcd(idle, all);
  const double share = static_cast<double>(idle) / static_cast<double>(all);
  out.set("bubble", 100 * share, "%");
  out.set("bubble_fraction_exact", Json::array({idle / divisor, all / divisor}));
  out.set("utilisation", 100 * (1 - share), "%");
  out.set("share", 100 * share, "%");
  out.set("overhead", 100 * static_cast<double>(idle) / static_cast<double>(v * m), "%");
  if (v > 1) {
    out.note("v chunks a stage divide the overhead by v and multiply the messages by v");
  } else {
    out.note("gpipe and 1f1b have the same bubble; 1f1b holds fewer micro-batches");
  }
}

void live(const Inputs& in, Outputs& out) {
  const auto [p, m, v] = sizes_of(in);
  std::vector<std::int64_t> all(static_cast<std::size_t>(p), m);
  std::vector<std::int64_t> few;
  for (std::int64_t stage = 0; stage < p; ++stage) {
    few.push_back(std::min(p - stage, m));
  }
  out.set("gpipe", all);
  out.set("one_f_one_b", few);
}

void fewest_micro_batches(const Inputs& in, Outputs& out) {
  const std::int64_t p = in.count("stages");
  const double percent = in.percent("limit");
  if (!(percent > 0 && percent < 100)) {
    in.reject("limit must lie between 0 and 1 (or 0 % and 100 %)");
  }
  const auto idle = static_cast<double>(p - 1);
  const auto share = [&](std::int64_t m) { return 100 * idle / static_cast<double>(m + p - 1); };
  auto m = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(idle * (100 / percent - 1))) - 1);
  while (!(share(m) < percent)) {
    ++m;
  }
  out.set("microbatches", m);
  for (const std::int64_t at : {m - 1, m}) {
    if (at >= 1) {
      out.set(fmt::format("bubble_at_{}", at), share(at), "%");
    }
  }
}

struct Drawn {
  const char* name;
  PipelineSchedule schedule;
};
constexpr std::array<Drawn, 7> kDrawn{{{"gpipe", PipelineSchedule::GPipe},
                                       {"1f1b", PipelineSchedule::OneForwardOneBackward},
                                       {"interleaved", PipelineSchedule::Interleaved},
                                       {"zero_bubble", PipelineSchedule::ZeroBubble},
                                       {"zero_bubble_v", PipelineSchedule::ZeroBubbleV},
                                       {"pipedream", PipelineSchedule::PipeDream},
                                       {"pipedream_2bw", PipelineSchedule::PipeDream2BW}}};

char letter(PipelineAction::Kind kind) {
  switch (kind) {
    case PipelineAction::Kind::Forward:
      return 'F';
    case PipelineAction::Kind::InputGradient:
      return 'I';
    case PipelineAction::Kind::WeightGradient:
      return 'W';
    case PipelineAction::Kind::Backward:
      break;
  }
  return 'B';
}

/// A row a stage, a cell a unit of time; a backward is two cells.
void draw(const Inputs& in, Outputs& out) {
  const auto [p, m, v] = sizes_of(in);
  const std::string name = in.word("schedule", "");
  const auto* found = std::find_if(kDrawn.begin(), kDrawn.end(),
                                   [&](const Drawn& drawn) { return name == drawn.name; });
  if (found == kDrawn.end()) {
    in.reject(
        fmt::format("there is no schedule {}; there are gpipe, 1f1b, interleaved, "
                    "zero_bubble, zero_bubble_v, pipedream, pipedream_2bw",
                    name));
  }
  if (v > 1 && found->schedule != PipelineSchedule::Interleaved) {
    in.reject(fmt::format("v = {} chunks a stage is for schedule=interleaved", v));
  }
  const bool folded = found->schedule == PipelineSchedule::ZeroBubbleV;
  const Stages stages{static_cast<int>(p), folded ? 2 : static_cast<int>(v), folded, {}};
  const PipelineOrder order = pipeline_order(found->schedule, stages, static_cast<int>(m));
  const auto times = unit_times(order, stages);
  int end = 0;
  for (const auto& actions : times) {
    end = std::max(end, actions.back().end);
  }
  const std::size_t width = fmt::format("{}", m - 1).size() + (stages.chunks > 1 ? 2 : 0) + 2;
  double busy = 0;
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    std::string row;
    int now = 0;
    for (const TimedAction& timed : times[stage]) {
      for (; now < timed.start; ++now) {
        row += fmt::format("{:<{}}", '.', width);
      }
      std::string cell = fmt::format("{}{}", letter(timed.action.kind), timed.action.micro_batch);
      if (stages.chunks > 1) {
        cell += fmt::format(".{}", timed.action.segment / stages.stages);
      }
      for (; now < timed.end; ++now) {
        row += fmt::format("{:<{}}", cell, width);
      }
      busy += timed.end - timed.start;
    }
    for (; now < end; ++now) {
      row += fmt::format("{:<{}}", '.', width);
    }
    out.set(fmt::format("stage_{}", stage), row, "");
  }
  out.set("drawn_bubble", 100 * (1 - busy / (static_cast<double>(p) * end)), "%");
  out.set("live", live_micro_batches(order));
  const UpdateRule rule = update_rule(found->schedule, stages, order, static_cast<int>(m));
  for (std::size_t stage = 0; stage < rule.versions.size(); ++stage) {
    out.set(fmt::format("versions_{}", stage), rule.versions[stage], "");
  }
  if (rule.asynchronous()) {
    out.note(fmt::format(
        "a stage updates after every {} backwards; versions_s: those of stage s that each "
        "micro-batch goes through; the pipeline empties at the end of the window",
        rule.every));
  }
}

}  // namespace

std::vector<Rule> pipeline_rules() {
  return {
      {.formula = "bubble = (P - 1) / (v M + P - 1) of all time; overhead = (P - 1) / (v M)",
       .needs = {"stages", "microbatches"},
       .optional = {"v"},
       .absent = {"schedule"},
       .apply = bubble},
      {.formula = "live micro-batches: gpipe M on every stage; 1f1b min(P - stage, M)",
       .needs = {"stages", "microbatches"},
       .absent = {"schedule", "v"},
       .apply = live},
      {.formula = "smallest M with (P - 1) / (M + P - 1) < limit",
       .needs = {"stages", "limit"},
       .absent = {"microbatches"},
       .apply = fewest_micro_batches},
      {.formula = "each stage in its order; a forward and half a backward take one unit of time",
       .needs = {"stages", "microbatches", "schedule"},
       .optional = {"v"},
       .apply = draw},
  };
}

}  // namespace sw::accounts
