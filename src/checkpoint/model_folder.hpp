#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.hpp"
#include "checkpoint/safetensors.hpp"

/// A Hugging Face model folder as files: config.json and model.safetensors, or shards named by
/// model.safetensors.index.json. What the tensors mean is the model's affair (model_weights.hpp).
namespace sw {

/// The tensors of a folder, mapped. Index and shards must agree in both directions; names in the
/// index that leave the folder are refused, links inside it are followed.
class ModelFolder {
 public:
  explicit ModelFolder(const std::filesystem::path& folder);
  [[nodiscard]] const TensorViews& tensors() const { return tensors_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void add(SafetensorsReader file);

  std::filesystem::path path_;
  std::vector<SafetensorsReader> files_;
  TensorViews tensors_;
};

/// Writes a folder tensor by tensor, beside its final name, and renames it when it is complete.
class ModelFolderWriter {
 public:
  /// `folder` must not exist, or be empty (ConfigError). A file holds at most `file_limit` bytes of
  /// tensors (or a single larger one); more than one file gets an index.
  ModelFolderWriter(Files& files, const std::filesystem::path& folder, std::string_view config_json,
                    std::vector<TensorDeclaration> tensors,
                    std::int64_t file_limit = 5'000'000'000);
  /// Removes what was not finished.
  ~ModelFolderWriter();
  ModelFolderWriter(const ModelFolderWriter&) = delete;
  ModelFolderWriter& operator=(const ModelFolderWriter&) = delete;

  /// The next bytes of `name`, which must be the tensor that is due; any number of calls each.
  void write(std::string_view name, std::span<const std::byte> part);
  void finish();

 private:
  void open_next();
  void write_index();

  Files& files_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;
  std::vector<std::vector<TensorDeclaration>> shards_;
  std::vector<std::string> names_;  ///< of the shards
  std::size_t next_shard_ = 0;
  std::unique_ptr<SafetensorsWriter> open_;
  bool finished_ = false;
};

}  // namespace sw
