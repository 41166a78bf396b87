#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.hpp"

namespace sw {

/// How a window's slots (a valid token has one for each expert that it chose) were shared out.
struct ExpertLoad {
  std::vector<std::int64_t> slots;  ///< of each expert, summed over layers
  double hottest = 0;               ///< the largest share of an expert in its layer, of an even one
  std::int64_t idle = 0;            ///< experts that got no slot, over layers
  /// The same as `hottest` of the experts that one rank of an ep group holds; of 1 rank, 1.
  double hottest_rank = 0;
  std::optional<std::int64_t> dropped;  ///< slots that no expert took, of a model with a capacity
  friend bool operator==(const ExpertLoad&, const ExpertLoad&) = default;
};
/// From `load` [layers, E], E = `experts`, of which each of `ranks` holds as many as another.
[[nodiscard]] ExpertLoad expert_load(std::span<const std::int64_t> load, std::int64_t experts,
                                     int ranks);

/// A line of metrics.jsonl: one step. Times are the slowest rank's.
struct StepMetrics {
  std::int64_t step = 0;
  std::optional<double> loss;  ///< none: a window without a valid token, which is not run
  std::optional<double> balance_loss, z_loss;  ///< what routers add to what is trained
  std::optional<ExpertLoad> experts;
  std::int64_t tokens = 0;
  std::int64_t valid_tokens = 0;
  std::int64_t samples = 0;
  std::int64_t unique_samples = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t skipped_steps = 0;
  std::string skipped;  ///< why this step was skipped; empty: it was not
  double learning_rate = 0;
  std::optional<double> gradient_norm;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> mfu;
  double communication_seconds = 0;
  double exposed_communication_seconds = 0;
  double wait_seconds = 0;
  int slowest_rank = 0;
  std::int64_t peak_bytes =
      0;  ///< planned, of the rank with the most; a run whose measured peak differs fails
  /// Asynchronous pipelines, by stage: the most updates that were made between the weights of a
  /// gradient and those that it changed.
  std::vector<int> staleness;
  std::optional<double> validation_loss;
  std::int64_t validation_tokens = 0;
};

/// One line of JSON, without the newline.
[[nodiscard]] std::string to_json_line(const StepMetrics& metrics);

/// A file of the run folder with a line of JSON a step, as metrics.jsonl: appended and flushed.
class StepFile {
 public:
  /// Keeps the lines of steps up to `keep_until` (0: none) of a file that is there, drops the rest
  /// and what a crash cut short.
  StepFile(Files& files, const std::filesystem::path& path, std::int64_t keep_until);
  /// `line` is JSON with the key "step", without the newline.
  void add(const std::string& line);

 private:
  std::unique_ptr<OutputFile> file_;
};

/// Progress on standard error: on a terminal one line that is rewritten, elsewhere a line a step.
class Progress {
 public:
  Progress(std::int64_t first_step, std::int64_t last_step);
  void show(const StepMetrics& metrics);
  /// Ends the rewritten line.
  void finish();

 private:
  std::int64_t first_;
  std::int64_t last_;
  bool terminal_;
  double started_;
};

}  // namespace sw
