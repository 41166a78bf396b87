#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "lower/compile.hpp"
#include "train/run_options.hpp"

/// Training: what the command prepares, what each rank does, what is put together afterwards.
namespace sw {

/// Where a run lives.
struct RunFolder {
  std::filesystem::path path;
  [[nodiscard]] std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  /// What rank r leaves for the account; removed once it is put together.
  [[nodiscard]] std::filesystem::path account_of(int rank) const;
};

/// Where TrainingState::extra holds the fingerprint of the training data.
inline constexpr const char* kDataFingerprintKey = "data_fingerprint";

/// What the launcher decides once for all ranks.
struct TrainingPlan {
  RunOptions options;  ///< data.train and data.validation name token sets that are verified already
  std::filesystem::path run_folder;
  std::string checkpoint;  ///< to resume from; empty: from the start
  std::string run_id;
  std::string session_id;
  double peak_flops_per_s = 0;  ///< of one rank, for the MFU; 0 = unknown
  std::int64_t first_step = 0;  ///< of the checkpoint
};

/// Checks everything that can be checked before ranks start (model, data, layout, sizes, the
/// checkpoint to resume from), then makes the run folder and tokenizes into it. Throws ConfigError
/// or DataError before anything is written. `base` is what relative patterns of the run file are
/// relative to.
[[nodiscard]] TrainingPlan prepare_training(const RunOptions& options,
                                            const std::filesystem::path& run_folder, bool resume,
                                            const std::filesystem::path& base);

/// Trains on one rank; all ranks call it. Returns 0, or 75 when stopped by a signal with a
/// checkpoint saved.
int train_rank(World& world, const TrainingPlan& plan);

/// Puts the ranks' accounts together: ledger.json and trace.json of the run folder. Returns false
/// when planned and measured differ.
bool finish_run(const TrainingPlan& plan, int ranks);

/// What a run file says about its Programs.
[[nodiscard]] CompileOptions compile_options(const RunOptions& options);

}  // namespace sw
