#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

/// Plan against run, from the files of a run folder.
namespace sw {

/// A step as metrics.jsonl tells it.
struct ReportedStep {
  std::int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> validation_loss;
  double step_seconds = 0;
  double tokens_per_second = 0;
  /// Of a model with experts: the largest share of one, of an even share, and how many got nothing.
  std::optional<double> hottest_expert, idle_experts;
};

struct RunReport {
  std::string folder;
  std::vector<ReportedStep> steps;
  std::int64_t skipped_steps = 0;
  Json plan;    ///< plan.json
  Json ledger;  ///< ledger.json; null while the run has not ended
};

/// Throws ConfigError when the folder holds no run, or when its files are not what we write.
[[nodiscard]] RunReport read_run_report(const std::filesystem::path& folder);

/// Whether every planned integer equals the measured one; none without a ledger.
[[nodiscard]] std::optional<bool> planned_equals_measured(const RunReport& report);

/// Median seconds of a step, the first left out where there are more (it warms up).
[[nodiscard]] double median_step_seconds(const RunReport& report);

[[nodiscard]] std::string to_text(const RunReport& report);
[[nodiscard]] Json to_json(const RunReport& report);

}  // namespace sw
