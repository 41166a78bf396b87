#include "checkpoint/commands.hpp"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_weights.hpp"
#include "checkpoint/reader.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

void check_exists(const fs::path& path) {
  if (!is_there(path)) {
    throw ConfigError(
        fmt::format("{}: does not exist; name a checkpoint, a folder of them or the "
                    "folder of a run",
                    path.string()));
  }
}

bool is_checkpoint(const fs::path& path) { return is_there(path / kManifestName); }

/// Where the checkpoints of a path lie.
fs::path folder_of(const fs::path& path) {
  return is_there(path / "checkpoints") ? path / "checkpoints" : path;
}

std::string count_of(std::size_t checkpoints) {
  return fmt::format("{} checkpoint{}", checkpoints, checkpoints == 1 ? "" : "s");
}

std::string shown_name(const StateTensor& tensor) {
  return tensor.state == kWeightState ? tensor.tensor
                                      : fmt::format("{}/{}", tensor.state, tensor.tensor);
}

Json summary_of(const CheckpointReader& reader) {
  const TrainingState& state = reader.state();
  return {{"step", state.step},
          {"samples", state.consumed_samples},
          {"bytes", reader.bytes()},
          {"updates", state.updates},
          {"skipped_steps", state.skipped_steps},
          {"seed", state.seed},
          {"loss_scale", state.loss_scale},
          {"run", reader.run()},
          {"ranks", reader.ranks()},
          {"path", reader.path().string()}};
}

std::string line_of(const CheckpointReader& reader) {
  return fmt::format(
      "{}: step {}, {} samples, {} bytes, {} tensors, written by {} ranks of run {}\n",
      reader.path().string(), reader.state().step, reader.state().consumed_samples, reader.bytes(),
      reader.tensors().size(), reader.ranks(), reader.run());
}

CommandResult inspect_checkpoint(const fs::path& path) {
  const CheckpointReader reader(path);
  CommandResult result{line_of(reader), summary_of(reader)};
  Json tensors = Json::array();
  for (const StateTensor& tensor : reader.tensors()) {
    const std::string digest = to_text(reader.digest(tensor.tensor, tensor.state));
    const std::string name = shown_name(tensor);
    tensors.push_back({{"name", name},
                       {"dtype", to_text(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"digest", digest},
                       {"tensor", tensor.tensor},
                       {"state", tensor.state}});
    result.text += fmt::format("{}  {:<9} {:<16} {}\n", digest, to_text(tensor.dtype),
                               to_text(tensor.shape), name);
  }
  result.json["tensors"] = std::move(tensors);
  result.json["extra"] = reader.state().extra;
  return result;
}

/// Does `action` to one checkpoint; its DataError is a finding.
template <typename Action>
void add_finding(const fs::path& path, const Action& action, CommandResult& result, Json& list) {
  try {
    action();
  } catch (const DataError& error) {
    result.good = false;
    result.text += fmt::format("damaged: {}\n", error.what());
    list.push_back({{"path", path.string()}, {"ok", false}, {"error", error.what()}});
  }
}

std::vector<fs::path> checkpoints_of(const fs::path& path) {
  if (is_checkpoint(path)) {
    return {path};
  }
  std::vector<fs::path> paths;
  for (const ListedCheckpoint& checkpoint : list_folder(folder_of(path)).checkpoints) {
    paths.push_back(checkpoint.path);
  }
  return paths;
}

bool is_model_folder(const fs::path& path) {
  return is_there(path / "config.json") &&
         (is_there(path / "model.safetensors") || is_there(path / "model.safetensors.index.json"));
}

/// The checkpoint to convert, verified.
fs::path checkpoint_to_convert(const fs::path& path,
                               const std::function<void(const std::string&)>& note) {
  if (is_checkpoint(path)) {
    verify_checkpoint(path);
    return path;
  }
  const auto newest = find_newest(folder_of(path), note);
  if (!newest) {
    throw DataError(
        fmt::format("{}: holds neither a checkpoint that verifies nor a Hugging Face "
                    "model",
                    path.string()));
  }
  return *newest;
}

}  // namespace

CommandResult inspect_path(const fs::path& path) {
  check_exists(path);
  if (is_checkpoint(path)) {
    return inspect_checkpoint(path);
  }
  const std::vector<fs::path> paths = checkpoints_of(path);
  CommandResult result{fmt::format("{}: {}\n", path.string(), count_of(paths.size())), {}};
  Json list = Json::array();
  for (const fs::path& checkpoint : paths) {
    add_finding(
        checkpoint,
        [&] {
          const CheckpointReader reader(checkpoint);
          list.push_back(summary_of(reader));
          result.text += line_of(reader);
        },
        result, list);
  }
  result.json = {{"checkpoints", std::move(list)}};
  return result;
}

CommandResult verify_path(const fs::path& path) {
  check_exists(path);
  const std::vector<fs::path> paths = checkpoints_of(path);
  CommandResult result;
  Json list = Json::array();
  for (const fs::path& checkpoint : paths) {
    add_finding(
        checkpoint,
        [&] {
          verify_checkpoint(checkpoint);
          list.push_back({{"path", checkpoint.string()}, {"ok", true}});
          result.text += fmt::format("good: {}\n", checkpoint.string());
        },
        result, list);
  }
  result.text += fmt::format("{}: {}{}\n", path.string(), count_of(paths.size()),
                             result.good ? "" : ", damage found");
  result.json = {{"ok", result.good}, {"checkpoints", std::move(list)}};
  return result;
}

CommandResult prune_path(Files& files, const fs::path& path, std::int64_t keep) {
  check_exists(path);
  if (is_checkpoint(path)) {
    throw ConfigError(fmt::format("{}: is one checkpoint; name the folder that holds it to prune",
                                  path.string()));
  }
  if (keep < 1) {
    throw ConfigError(fmt::format("keep = {} would leave no checkpoint; keep at least 1", keep));
  }
  const fs::path folder = folder_of(path);
  std::map<std::string, std::int64_t> newest;  // of each run
  for (const ListedCheckpoint& checkpoint : list_folder(folder).checkpoints) {
    if (const auto owner = owner_of(checkpoint.path)) {
      newest[*owner] = checkpoint.step;
    }
  }
  Json removed = Json::array();
  CommandResult result;
  for (const auto& [run, step] : newest) {
    for (const fs::path& gone : apply_retention(files, folder, {run, keep, step, std::nullopt})) {
      removed.push_back(gone.string());
      result.text += fmt::format("removed {}\n", gone.string());
    }
  }
  const std::size_t left = list_folder(folder).checkpoints.size();
  result.text +=
      fmt::format("{}: removed {}, {} left\n", folder.string(), count_of(removed.size()), left);
  result.json = {{"removed", std::move(removed)}, {"left", left}};
  return result;
}

CommandResult convert_path(Files& files, const fs::path& from, const fs::path& to, DType stored) {
  check_exists(from);
  CommandResult result;
  Json notes = Json::array();
  const auto note = [&](const std::string& text) {
    notes.push_back(text);
    result.text += text + "\n";
  };
  fs::path written = to;
  fs::path source = from;
  if (is_model_folder(from)) {
    const std::string config = read_whole_file(from / "config.json", 1 << 24);
    written = import_model(files, config_from_json(config, (from / "config.json").string()), from,
                           to, note);
  } else {
    source = checkpoint_to_convert(from, note);
    export_model(files, CheckpointReader(source), stored, to);
  }
  result.text += fmt::format("{} from {}\n", written.string(), source.string());
  result.json = {
      {"from", source.string()}, {"written", written.string()}, {"notes", std::move(notes)}};
  return result;
}

}  // namespace sw
