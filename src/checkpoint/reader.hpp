#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/pieces.hpp"
#include "checkpoint/safetensors.hpp"

namespace sw {

struct Manifest;
struct PieceRecord;

/// Reads a checkpoint into any layout. Opening checks everything but the checksums of the
/// elements: manifest, sizes, and that the pieces cover every tensor exactly once. Files are
/// mapped, so what is not asked for is not read. Every fault is a DataError that names the file.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  [[nodiscard]] const TrainingState& state() const { return state_; }
  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Ranks that wrote it.
  [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(files_.size()); }
  /// Of all files together.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// In the order of names, then states.
  [[nodiscard]] std::vector<StateTensor> tensors() const;

  /// Refuses, naming the first of each kind, when the checkpoint does not hold exactly `expected`:
  /// a missing moment is never started anew in silence.
  void require(std::span<const StateTensor> expected) const;

  /// Copies the elements of `target` into `out`, bit by bit and in the stored type.
  void read(std::string_view tensor, std::string_view state, const PieceRange& target,
            std::span<std::byte> out) const;

  /// Checksum of a tensor's elements, row major: depends on the values only, not on who wrote them.
  [[nodiscard]] Digest digest(std::string_view tensor, std::string_view state) const;

 private:
  struct StoredPiece {
    PieceRange range;
    const std::byte* data = nullptr;
  };
  struct Stored {
    DType dtype = DType::Float32;
    Shape shape;
    std::vector<StoredPiece> pieces;
  };
  using Key = std::pair<std::string, std::string>;  // tensor, state

  void add_rank(std::int64_t rank, const Manifest& manifest);
  void add_piece(const PieceRecord& piece, std::size_t position, const TensorViews& views,
                 const std::filesystem::path& data_path);
  void check_cover() const;
  [[nodiscard]] const Stored& stored(std::string_view tensor, std::string_view state) const;

  std::filesystem::path path_;
  TrainingState state_;
  std::string run_;
  std::int64_t bytes_ = 0;
  std::vector<SafetensorsReader> files_;
  std::map<Key, Stored> tensors_;
};

/// Reads every byte of a checkpoint and compares the checksums; throws DataError at the first
/// fault.
void verify_checkpoint(const std::filesystem::path& checkpoint);

/// The newest checkpoint of `folder` that verifies; nothing when there is none, or no folder. With
/// `run`, only that run's. `note` hears of each that was passed over, and why.
[[nodiscard]] std::optional<std::filesystem::path> find_newest(
    const std::filesystem::path& folder, const std::function<void(const std::string&)>& note,
    const std::optional<std::string>& run = std::nullopt);

}  // namespace sw
