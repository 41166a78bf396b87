#include "checkpoint/model_folder.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMaxIndexBytes = 256 << 20;

/// A file inside the folder, as an index may name one: no way out of it by its spelling.
void check_stays_inside(const fs::path& index, const std::string& name) {
  const fs::path path(name);
  const bool leaves = name.empty() || name.find('\0') != std::string::npos || path.is_absolute() ||
                      std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; });
  if (leaves) {
    throw DataError(fmt::format("{}: names the file {}, which is not inside the folder",
                                index.string(), Json(name).dump()));
  }
}

/// Tensor name to file name.
std::map<std::string, std::string> read_index(const fs::path& index) {
  const Json json = parse_json(read_whole_file(index, kMaxIndexBytes), index.string());
  const auto weights = json.is_object() ? json.find("weight_map") : json.end();
  if (weights == json.end() || !weights->is_object()) {
    throw DataError(fmt::format("{}: has no object 'weight_map'", index.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weights->items()) {
    if (!file.is_string()) {
      throw DataError(
          fmt::format("{}: weight_map '{}' is not a file name", index.string(), tensor));
    }
    check_stays_inside(index, file.get<std::string>());
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

/// Files called like a shard of this folder that the index does not name.
std::vector<std::string> stray_shards(const fs::path& folder, const std::set<std::string>& named) {
  std::vector<std::string> stray;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model-") && name.ends_with(".safetensors") && !named.contains(name)) {
      stray.push_back(name);
    }
  }
  std::ranges::sort(stray);
  return stray;
}

/// Everything in which index and shards differ, or nothing.
std::vector<std::string> disagreements(const std::map<std::string, std::string>& index,
                                       const std::map<std::string, SafetensorsReader>& shards) {
  std::vector<std::string> faults;
  for (const auto& [tensor, file] : index) {
    if (!shards.at(file).tensors().contains(tensor)) {
      faults.push_back(fmt::format("'{}' is not in {}, where the index puts it", tensor, file));
    }
  }
  for (const auto& [file, reader] : shards) {
    for (const auto& [tensor, view] : reader.tensors()) {
      const auto entry = index.find(tensor);
      if (entry == index.end()) {
        faults.push_back(fmt::format("'{}' in {} is not in the index", tensor, file));
      } else if (entry->second != file) {
        faults.push_back(
            fmt::format("'{}' is in {}, but the index puts it in {}", tensor, file, entry->second));
      }
    }
  }
  return faults;
}

std::map<std::string, SafetensorsReader> open_shards(const fs::path& folder,
                                                     const std::set<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!is_there(folder / name)) {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    throw DataError(
        fmt::format("{}: names files that are not there: {}; fetch the whole folder "
                    "again",
                    (folder / kIndex).string(), fmt::join(missing, ", ")));
  }
  std::map<std::string, SafetensorsReader> shards;
  for (const std::string& name : names) {
    shards.emplace(name, SafetensorsReader(folder / name));
  }
  return shards;
}

std::map<std::string, SafetensorsReader> open_indexed(const fs::path& folder) {
  const fs::path index_path = folder / kIndex;
  const std::map<std::string, std::string> index = read_index(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) {
    names.insert(file);
  }
  if (const auto stray = stray_shards(folder, names); !stray.empty()) {
    throw DataError(
        fmt::format("{}: does not name {}, which lie beside it: index and files do not "
                    "belong together; fetch the whole folder again",
                    index_path.string(), fmt::join(stray, ", ")));
  }
  std::map<std::string, SafetensorsReader> shards = open_shards(folder, names);
  if (const auto faults = disagreements(index, shards); !faults.empty()) {
    throw DataError(fmt::format("{}: index and files disagree: {}; fetch the whole folder again",
                                index_path.string(), fmt::join(faults, "; ")));
  }
  return shards;
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& folder) : path_(folder) {
  const bool single = is_there(folder / kSingle);
  const bool indexed = is_there(folder / kIndex);
  const std::vector<std::string> stray =
      single ? stray_shards(folder, {}) : std::vector<std::string>{};
  if (single && (indexed || !stray.empty())) {
    throw DataError(
        fmt::format("{}: holds both {} and {}, and which one counts cannot be told; "
                    "remove the one that is not meant",
                    folder.string(), kSingle, indexed ? kIndex : stray.front()));
  }
  if (!single && !indexed) {
    throw DataError(fmt::format("{}: holds neither {} nor {}; only safetensors weights are read",
                                folder.string(), kSingle, kIndex));
  }
  if (single) {
    add(SafetensorsReader(folder / kSingle));
    return;
  }
  for (auto& [name, reader] : open_indexed(folder)) {
    add(std::move(reader));
  }
}

void ModelFolder::add(SafetensorsReader file) {
  files_.push_back(std::move(file));
  for (const auto& [name, view] : files_.back().tensors()) {
    tensors_.emplace(name, view);
  }
}

}  // namespace sw
