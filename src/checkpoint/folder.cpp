#include "checkpoint/folder.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/manifest.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kReplaced = ".replaced";
constexpr std::string_view kRemoved = ".removed";

/// The number in "step-NUMBER"; nothing for any other text.
std::optional<std::int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0 ||
      checkpoint_name(step).substr(kPrefix.size()) != name) {
    return std::nullopt;
  }
  return step;
}

/// The step of a hidden name of ours with this ending.
std::optional<std::int64_t> hidden_step_of(std::string_view name, std::string_view ending) {
  if (!name.starts_with('.') || !name.ends_with(ending)) {
    return std::nullopt;
  }
  name.remove_prefix(1);
  return step_of(name.substr(0, name.find('.')));
}

fs::path hidden(const fs::path& folder, std::int64_t step, std::string_view ending) {
  return folder / fmt::format(".{}{}", checkpoint_name(step), ending);
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;  // what vanishes meanwhile is no folder
    if (entry->is_directory(ignored)) {
      folders.push_back(entry->path());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw DataError(
        fmt::format("{}: could not list the directory: {}", folder.string(), error.message()));
  }
  std::ranges::sort(folders);
  return folders;
}

/// Through a hidden name, so that a visible checkpoint is never half removed.
void remove_checkpoint(Files& files, const ListedCheckpoint& checkpoint) {
  const fs::path removed = hidden(checkpoint.path.parent_path(), checkpoint.step, kRemoved);
  files.remove_all(removed);
  files.rename(checkpoint.path, removed);
  files.remove_all(removed);
}

bool has_all_files(const fs::path& checkpoint) {
  return std::ranges::all_of(read_manifest(checkpoint).files, [&](const FileRecord& record) {
    std::error_code error;
    const auto bytes = fs::file_size(checkpoint / record.name, error);
    return !error && std::cmp_equal(bytes, record.bytes);
  });
}

}  // namespace

std::optional<std::string> owner_of(const fs::path& checkpoint) {
  try {
    return read_manifest(checkpoint).run;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

FolderContent list_folder(const fs::path& folder) {
  FolderContent content;
  std::map<std::int64_t, fs::path> checkpoints;
  std::map<std::int64_t, fs::path> replaced;
  for (const fs::path& path : folders_in(folder)) {
    const std::string name = path.filename().string();
    if (const auto step = step_of(name)) {
      checkpoints.emplace(*step, path);
    } else if (const auto old_step = hidden_step_of(name, kReplaced)) {
      replaced.emplace(*old_step, path);
    } else if (hidden_step_of(name, kTemporary) || hidden_step_of(name, kRemoved)) {
      content.leftovers.push_back(path);
    }
  }
  for (const auto& [step, path] : replaced) {
    if (!checkpoints.emplace(step, path).second) {
      content.leftovers.push_back(path);
    }
  }
  for (const auto& [step, path] : checkpoints) {
    content.checkpoints.push_back({step, path});
  }
  return content;
}

void clear_leftovers(Files& files, const fs::path& folder, std::string_view session) {
  const FolderContent content = list_folder(folder);
  const std::string ours = fmt::format(".{}-", session);
  for (const fs::path& leftover : content.leftovers) {
    if (leftover.filename().string().find(ours) == std::string::npos) {
      files.remove_all(leftover);
    }
  }
  for (const ListedCheckpoint& checkpoint : content.checkpoints) {
    const fs::path name = folder / checkpoint_name(checkpoint.step);
    if (checkpoint.path != name) {
      files.rename(checkpoint.path, name);
      files.sync_directory(folder);
    }
  }
}

void place_checkpoint(Files& files, const fs::path& temporary, const fs::path& folder,
                      std::int64_t step) {
  const fs::path name = folder / checkpoint_name(step);
  const fs::path replaced = hidden(folder, step, kReplaced);
  std::error_code unreadable;
  if (fs::exists(name, unreadable)) {
    files.remove_all(replaced);
    files.rename(name, replaced);
  }
  files.rename(temporary, name);
  files.sync_directory(folder);
  files.remove_all(replaced);
}

std::vector<fs::path> apply_retention(Files& files, const fs::path& folder,
                                      const Retention& retention) {
  std::vector<fs::path> removed;
  if (retention.keep <= 0) {
    return removed;
  }
  const FolderContent content = list_folder(folder);
  std::int64_t kept = 0;
  for (auto entry = content.checkpoints.rbegin(); entry != content.checkpoints.rend(); ++entry) {
    if (entry->step > retention.newest || owner_of(entry->path) != retention.run) {
      continue;
    }
    if (kept < retention.keep) {
      kept += entry->step == retention.newest || has_all_files(entry->path) ? 1 : 0;
    } else if (entry->step != retention.best) {
      remove_checkpoint(files, *entry);
      removed.push_back(entry->path);
    }
  }
  return removed;
}

}  // namespace sw
