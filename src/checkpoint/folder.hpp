#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.hpp"

/// The folder of a run's checkpoints. Names in it:
///   step-000050                       a complete checkpoint
///   .step-000050.SESSION-N.tmp        being written, or left by a killed writer
///   .step-000050.replaced             the complete one that a new one of its step is taking over
///   from .step-000050.removed              being removed
/// Everything else is not ours and stays untouched.
namespace sw {

struct ListedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};

struct FolderContent {
  std::vector<ListedCheckpoint> checkpoints;     ///< by step, ascending: numbers, not text
  std::vector<std::filesystem::path> leftovers;  ///< never finished, or half removed
};

/// Names only: nothing is opened. A "replaced" folder counts as the checkpoint of its step where
/// that has none. No folder is an empty one.
[[nodiscard]] FolderContent list_folder(const std::filesystem::path& folder);

/// The run that a checkpoint belongs to; nothing when its manifest cannot be read.
[[nodiscard]] std::optional<std::string> owner_of(const std::filesystem::path& checkpoint);

/// Removes leftovers, except what `session` itself is writing, and gives a "replaced" checkpoint
/// its name back where nothing took its place.
void clear_leftovers(Files& files, const std::filesystem::path& folder, std::string_view session);

/// Gives a finished temporary folder its final name, and makes that durable. A checkpoint of the
/// same step gives way.
void place_checkpoint(Files& files, const std::filesystem::path& temporary,
                      const std::filesystem::path& folder, std::int64_t step);

/// What retention must not remove.
struct Retention {
  std::string run;          ///< only this run's checkpoints are counted or removed
  std::int64_t keep = 3;    ///< the newest complete ones; 0 keeps all
  std::int64_t newest = 0;  ///< step just written; later ones (of an abandoned future) are let be
  std::optional<std::int64_t> best;  ///< kept beside the newest
};

/// Removes old checkpoints and returns which. Complete means that the manifest is sound and all
/// files have their sizes; what is not complete is not counted.
std::vector<std::filesystem::path> apply_retention(Files& files,
                                                   const std::filesystem::path& folder,
                                                   const Retention& retention);

}  // namespace sw
