#include <map>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "checkpoint/model_folder.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

/// Header bytes of a tensor, from above: every byte of the name may be escaped to six.
std::int64_t header_bytes(const TensorDeclaration& tensor) {
  return 6 * std::ssize(tensor.name) + 22 * std::ssize(tensor.shape) + 128;
}

/// Deals the tensors out in order: a shard is full by its data or by its header (case C066).
std::vector<std::vector<TensorDeclaration>> cut(std::vector<TensorDeclaration> tensors,
                                                std::int64_t file_limit) {
  std::vector<std::vector<TensorDeclaration>> shards(1);
  std::int64_t data = 0;
  std::int64_t header = 0;
  for (TensorDeclaration& tensor : tensors) {
    data += bytes_of(tensor);
    header += header_bytes(tensor);
    if (!shards.back().empty() && (data > file_limit || header > kMaxSafetensorsHeader)) {
      shards.emplace_back();
      data = bytes_of(tensor);
      header = header_bytes(tensor);
    }
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::vector<std::string> shard_names(std::size_t count) {
  if (count == 1) {
    return {"model.safetensors"};
  }
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= count; ++i) {
    names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, count));
  }
  return names;
}

void check_free(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    throw ConfigError(
        fmt::format("{}: exists and is not empty; name a new folder", folder.string()));
  }
}

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

ModelFolderWriter::ModelFolderWriter(Files& files, const fs::path& folder,
                                     std::string_view config_json,
                                     std::vector<TensorDeclaration> tensors,
                                     std::int64_t file_limit)
    : files_(files),
      folder_(without_trailing_slash(fs::absolute(folder))),
      temporary_(folder_.parent_path() / fmt::format(".{}.tmp", folder_.filename().string())),
      shards_(cut(std::move(tensors), file_limit)),
      names_(shard_names(shards_.size())) {
  check_free(folder_);
  files_.remove_all(temporary_);
  files_.create_directories(temporary_);
  write_whole_file(files_, temporary_ / "config.json", config_json);
  open_next();
}

ModelFolderWriter::~ModelFolderWriter() {
  if (finished_) {
    return;
  }
  try {
    files_.remove_all(temporary_);
  } catch (const DataError& error) {
    warn(error.what());
  }
}

void ModelFolderWriter::open_next() {
  // The word that other readers look for: the layout of the values is that of PyTorch.
  open_ = std::make_unique<SafetensorsWriter>(files_, temporary_ / names_[next_shard_],
                                              shards_[next_shard_],
                                              std::map<std::string, std::string>{{"format", "pt"}});
  ++next_shard_;
}

void ModelFolderWriter::write(std::string_view name, std::span<const std::byte> part) {
  if (part.empty()) {
    return;
  }
  if (open_->complete() && next_shard_ < shards_.size()) {
    open_->finish();
    open_next();
  }
  open_->write(name, part);
}

void ModelFolderWriter::write_index() {
  std::int64_t total = 0;
  std::map<std::string, std::string> weights;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    for (const TensorDeclaration& tensor : shards_[i]) {
      weights.emplace(tensor.name, names_[i]);
      total += bytes_of(tensor);
    }
  }
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", weights}};
  write_whole_file(files_, temporary_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

void ModelFolderWriter::finish() {
  open_->finish();
  while (next_shard_ < shards_.size()) {  // shards of empty tensors only
    open_next();
    open_->finish();
  }
  if (shards_.size() > 1) {
    write_index();
  }
  files_.sync_directory(temporary_);
  files_.rename(temporary_, folder_);
  files_.sync_directory(folder_.parent_path());
  finished_ = true;
}

}  // namespace sw
