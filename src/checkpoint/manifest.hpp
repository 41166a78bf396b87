#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/pieces.hpp"

/// The JSON files of a checkpoint, as structs. docs/checkpoints.md shows them.
namespace sw {

/// "checkpoint.json": its presence under a final name makes a checkpoint.
inline constexpr std::string_view kManifestName = "checkpoint.json";
/// "step-000050"
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// "rank-00003.safetensors"
[[nodiscard]] std::string rank_data_name(std::int64_t rank);
/// "rank-00003.json", the mark that a rank is done.
[[nodiscard]] std::string rank_mark_name(std::int64_t rank);

/// A file of a checkpoint, as it must be found.
struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::string digest;  ///< to_text(Digest)
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// What a rank's data file holds at position k of its list.
struct PieceRecord {
  StateTensor tensor;
  PieceRange range;
  friend bool operator==(const PieceRecord&, const PieceRecord&) = default;
};

/// "weight/layers.0.up/7": the name of piece `position` in its rank's data file.
[[nodiscard]] std::string stored_name(const StateTensor& tensor, std::size_t position);

struct RankMark {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  FileRecord data;
  std::vector<PieceRecord> pieces;
};

struct Manifest {
  std::string run;
  std::int64_t ranks = 0;
  TrainingState state;
  std::vector<FileRecord> files;  ///< all but the manifest itself
};

[[nodiscard]] std::string to_json_text(const RankMark& mark);
/// With a checksum of itself.
[[nodiscard]] std::string to_json_text(const Manifest& manifest);

/// Both throw DataError, naming `where` and the key, for anything but what the two above write.
[[nodiscard]] RankMark rank_mark_from(std::string_view text, std::string_view where);
[[nodiscard]] Manifest manifest_from(std::string_view text, std::string_view where);

/// Reads the manifest of a checkpoint.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& checkpoint);
/// Longest JSON file of a checkpoint that is read.
inline constexpr std::int64_t kMaxCheckpointJson = std::int64_t{1} << 30;

}  // namespace sw
