#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/plan.hpp"
#include "report/run_report.hpp"

namespace sw {
namespace {

constexpr std::size_t kCurveWidth = 60;

std::vector<double> losses_of(const RunReport& report) {
  std::vector<double> losses;
  for (const ReportedStep& step : report.steps) {
    if (step.loss.has_value() && std::isfinite(*step.loss)) {
      losses.push_back(*step.loss);
    }
  }
  return losses;
}

/// Eight heights of blocks; each column is the mean of its share of the steps.
std::string curve(const std::vector<double>& values) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto [low, high] = std::ranges::minmax(values);
  const std::size_t columns = std::min(kCurveWidth, values.size());
  std::string text;
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t begin = column * values.size() / columns;
    const std::size_t end = (column + 1) * values.size() / columns;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += values[i];
    }
    const double mean = sum / static_cast<double>(end - begin);
    const double height = high > low ? (mean - low) / (high - low) : 0;
    text += kBlocks[static_cast<std::size_t>(std::lround(7 * height))];
  }
  return text;
}

std::string loss_text(const RunReport& report) {
  const std::vector<double> losses = losses_of(report);
  if (losses.empty()) {
    return "loss: no step yet\n";
  }
  std::string text = fmt::format("loss         {:.4f} -> {:.4f} in {} steps", losses.front(),
                                 losses.back(), report.steps.back().step);
  if (report.skipped_steps > 0) {
    text += fmt::format(", {} skipped", report.skipped_steps);
  }
  text += fmt::format("\n             {}\n", curve(losses));
  const auto validated =
      std::find_if(report.steps.rbegin(), report.steps.rend(),
                   [](const ReportedStep& step) { return step.validation_loss.has_value(); });
  if (validated != report.steps.rend()) {
    text += fmt::format("validation   {:.4f} at step {}\n", *validated->validation_loss,
                        validated->step);
  }
  return text;
}

/// Of the first step and the last; empty for a model without experts.
std::string experts_text(const RunReport& report) {
  const auto counts = [](const ReportedStep& step) { return step.hottest_expert.has_value(); };
  const auto first = std::find_if(report.steps.begin(), report.steps.end(), counts);
  const auto last = std::find_if(report.steps.rbegin(), report.steps.rend(), counts);
  if (first == report.steps.end()) {
    return "";
  }
  return fmt::format(
      "experts      hottest {:.2f} -> {:.2f} of an even share; without a token {:.0f} -> {:.0f}\n",
      *first->hottest_expert, *last->hottest_expert, first->idle_experts.value_or(0),
      last->idle_experts.value_or(0));
}

std::string time_text(const RunReport& report) {
  const double measured = median_step_seconds(report);
  if (measured <= 0 || report.plan.is_null()) {
    return "";
  }
  const auto planned = report.plan.at("step_seconds").get<double>();
  std::string text = fmt::format(
      "step         planned {:.4f} s, measured {:.4f} s (median): the prediction is {:+.0f} %\n",
      planned, measured, 100 * (planned / measured - 1));
  return text;
}

/// "=" where two integers are equal, else both.
std::string sign(const Json& planned, const Json& measured) {
  return planned == measured ? "=" : "DIFFERS";
}

std::string bytes(const Json& value) { return binary_bytes(value.get<std::int64_t>()); }

std::string collectives_text(const Json& ledger) {
  std::string text = fmt::format(
      "\ncollectives of {} steps, planned and measured\n  {:<15} {:<7} {:>17}  {:>37}  {:>9}  "
      "{:>9}\n",
      ledger.at("steps").get<std::int64_t>(), "kind", "axis", "calls", "bytes sent by all ranks",
      "seconds", "waiting");
  for (const Json& row : ledger.at("collectives")) {
    const Json& planned = row.at("planned");
    const Json& measured = row.at("measured");
    text += fmt::format("  {:<15} {:<7} {:>7} {} {:>7}  {:>17} {} {:>17}  {:>9.3f}  {:>9.3f}\n",
                        row.at("kind").get<std::string>(), row.at("axis").get<std::string>(),
                        planned.at("calls").dump(), sign(planned.at("calls"), measured.at("calls")),
                        measured.at("calls").dump(), planned.at("sent_bytes").dump(),
                        sign(planned.at("sent_bytes"), measured.at("sent_bytes")),
                        measured.at("sent_bytes").dump(), measured.at("seconds").get<double>(),
                        measured.at("wait_seconds").get<double>());
  }
  return ledger.at("collectives").empty() ? text + "  none\n" : text;
}

/// A line per rank: what was planned and measured under `what`.
std::string memory_lines(const Json& rows, const std::string& what) {
  std::string text;
  for (const Json& row : rows) {
    const Json& planned = row.at("planned_" + what);
    const Json& measured = row.at("measured_" + what);
    text += fmt::format("  rank {:<4} {:>14} {} {:<14} ({})\n", row.at("rank").dump(),
                        planned.dump(), sign(planned, measured), measured.dump(), bytes(measured));
  }
  return text;
}

std::string memory_text(const Json& ledger) {
  const Json& rows = ledger.at("memory");
  std::string text = "\npeak memory of a rank, planned and measured\n" + memory_lines(rows, "peak");
  const auto on_host = [](const Json& row) { return row.value("planned_host", 0LL) > 0; };
  if (std::any_of(rows.begin(), rows.end(), on_host)) {
    text += "\nof its host\n" + memory_lines(rows, "host");
  }
  if (const auto peak = ledger.find("process_peak"); peak != ledger.end() && peak->is_number()) {
    text += fmt::format("  the whole process, by the control group: {}\n", bytes(*peak));
  }
  return text;
}

/// The versions of its weights that each micro-batch of an asynchronous pipeline went through, in
/// the last step.
std::string versions_text(const Json& ledger) {
  const Json rows = ledger.value("versions", Json::array());
  std::string text;
  for (const Json& row : rows) {
    const Json& planned = row.at("planned");
    const Json& measured = row.at("measured");
    std::string used;
    for (const Json& use : measured) {
      used += fmt::format(" {}", use.at(1).get<int>());
    }
    text +=
        fmt::format("  rank {:<4} {}{}\n", row.at("rank").dump(), sign(planned, measured), used);
  }
  return text.empty()
             ? text
             : "\nversions of weights that micro-batches went through, planned and measured; "
               "this is no synchronous training\n" +
                   text;
}

}  // namespace

std::string to_text(const RunReport& report) {
  std::string text = fmt::format("{}\n\n", report.folder);
  if (report.plan.is_object()) {
    const Json& layout = report.plan.at("layout");
    const int ep = layout.at("ep").get<int>();
    text += fmt::format("layout       {} ranks = pp {} x dp {} x cp {} x tp {}{}\n",
                        report.plan.at("world").dump(), layout.at("pp").dump(),
                        layout.at("dp").dump(), layout.at("cp").dump(), layout.at("tp").dump(),
                        ep > 1 ? fmt::format(", experts on ep {}", ep) : "");
  }
  text += loss_text(report) + experts_text(report) + time_text(report);
  if (report.ledger.is_null()) {
    return text + "\nno ledger.json: the run has not ended\n";
  }
  text +=
      collectives_text(report.ledger) + memory_text(report.ledger) + versions_text(report.ledger);
  text += *planned_equals_measured(report)
              ? "\nEvery planned byte, call and peak is what was measured.\n"
              : "\nPlanned and measured DIFFER.\n";
  return text;
}

Json to_json(const RunReport& report) {
  const std::vector<double> losses = losses_of(report);
  const auto equal = planned_equals_measured(report);
  return {{"folder", report.folder},
          {"steps", report.steps.empty() ? 0 : report.steps.back().step},
          {"skipped_steps", report.skipped_steps},
          {"loss", losses.empty() ? Json(nullptr) : Json{losses.front(), losses.back()}},
          {"step_seconds",
           {{"planned", report.plan.is_object() ? report.plan.at("step_seconds") : Json(nullptr)},
            {"measured", median_step_seconds(report)}}},
          {"equal", equal.has_value() ? Json(*equal) : Json(nullptr)},
          {"plan", report.plan},
          {"ledger", report.ledger}};
}

}  // namespace sw
