#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/dtype.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

/// What a user does with checkpoints from the command line. A path is a checkpoint, a folder of
/// them, or the folder of a run; ConfigError when it does not exist.
namespace sw {

/// What a command found or did: for people and for programs.
struct CommandResult {
  std::string text;  ///< ends with a newline
  Json json;
  bool good = true;  ///< false: damage was found
};

/// One checkpoint: step, samples, bytes, tensors with the digests of their values. The name of a
/// state that is not the weight begins with it: "momentum/layers.0.up". A folder: one line each.
[[nodiscard]] CommandResult inspect_path(const std::filesystem::path& path);

/// Reads every byte and compares the checksums.
[[nodiscard]] CommandResult verify_path(const std::filesystem::path& path);

/// Removes all but the newest `keep` complete checkpoints of each run in a folder.
[[nodiscard]] CommandResult prune_path(Files& files, const std::filesystem::path& path,
                                       std::int64_t keep);

/// A checkpoint (of a folder: the newest that verifies) to a Hugging Face folder whose weights are
/// `stored`, or a Hugging Face folder to a folder with one checkpoint of its weights in float32.
[[nodiscard]] CommandResult convert_path(Files& files, const std::filesystem::path& from,
                                         const std::filesystem::path& to,
                                         DType stored = DType::Float32);

}  // namespace sw
