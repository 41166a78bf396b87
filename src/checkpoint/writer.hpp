#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/pieces.hpp"

namespace sw {

/// How the ranks of one launch save together.
struct WriterOptions {
  std::filesystem::path folder;  ///< ".../checkpoints"; created when needed
  std::string run;  ///< id of the run, kept when it resumes; retention touches no other run's
  std::string
      session;  ///< id of this launch: equal on its ranks, different from every other launch
  int rank = 0;
  int ranks = 1;
  std::int64_t keep = 3;      ///< the newest complete ones kept; 0 keeps all
  bool background = true;     ///< write from a copy on a thread of its own
  double deadline_s = 600.0;  ///< rank 0 waits this long without any progress of the others
  std::function<bool()> aborted = [] { return false; };  ///< asked from the writing thread
};

/// Saves checkpoints, one object per rank. The ranks speak through the folder only: each writes its
/// file and its mark, rank 0 waits for all marks, checks that the pieces cover every tensor exactly
/// once, writes the manifest and renames. A checkpoint exists from that rename on; a failure
/// anywhere before leaves what was there untouched.
class CheckpointWriter {
 public:
  /// Rank 0 clears away what killed writers left in the folder.
  CheckpointWriter(Files& files, WriterOptions options);
  /// Waits; logs an error that nobody asked for.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Called by all ranks for the same step. Waits for the save before it (and throws its error),
  /// then, in the background, copies the pieces and returns: the caller may change them at once.
  /// In the foreground returns when this rank is done, rank 0 when the checkpoint exists.
  /// `best_step`, where given, is a checkpoint that retention keeps beside the newest.
  void save(const TrainingState& state, std::span<const Piece> pieces,
            std::optional<std::int64_t> best_step = std::nullopt);

  /// Waits for the save under way; throws its error, once.
  void wait();

  /// Bytes that a save in the background copies: all the memory that it needs for the elements.
  [[nodiscard]] static std::int64_t snapshot_bytes(std::span<const Piece> pieces);

 private:
  void write(const TrainingState& state, const std::vector<Piece>& pieces,
             std::optional<std::int64_t> best_step) const;

  Files& files_;
  WriterOptions options_;
  std::vector<std::byte> snapshot_;
  std::int64_t saves_ = 0;
  std::future<void> pending_;
};

}  // namespace sw
