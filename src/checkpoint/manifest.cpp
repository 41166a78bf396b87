#include "checkpoint/manifest.hpp"

#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/files.hpp"

namespace sw {
namespace {

constexpr std::string_view kManifestFormat = "shardwright checkpoint";
constexpr std::string_view kMarkFormat = "shardwright checkpoint rank";
constexpr std::int64_t kVersion = 1;

/// A JSON value and where it stands; every access is checked.
class Node {
 public:
  Node(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  [[nodiscard]] Node at(std::string_view key) const {
    if (!value_.is_object()) {
      refuse("is not an object");
    }
    const auto found = value_.find(key);
    if (found == value_.end()) {
      refuse(fmt::format("has no key '{}'", key));
    }
    return {*found, fmt::format("{}: {}", where_, key)};
  }

  [[nodiscard]] std::vector<Node> list() const {
    if (!value_.is_array()) {
      refuse("is not a list");
    }
    std::vector<Node> nodes;
    nodes.reserve(value_.size());
    for (const Json& item : value_) {
      nodes.emplace_back(item, where_);
    }
    return nodes;
  }

  [[nodiscard]] std::string text() const {
    if (!value_.is_string()) {
      refuse("is not a string");
    }
    return value_.get<std::string>();
  }

  /// A whole number of at least 0.
  [[nodiscard]] std::int64_t count() const {
    if (!value_.is_number_unsigned() ||
        value_.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
      refuse("is not a whole number from 0 to 2^63-1");
    }
    return value_.get<std::int64_t>();
  }

  [[nodiscard]] std::uint64_t word() const {
    if (!value_.is_number_unsigned()) {
      refuse("is not a whole number from 0 to 2^64-1");
    }
    return value_.get<std::uint64_t>();
  }

  [[nodiscard]] double number() const {
    if (!value_.is_number()) {
      refuse("is not a number");
    }
    return value_.get<double>();
  }

  [[nodiscard]] const Json& json() const { return value_; }

  [[noreturn]] void refuse(std::string_view complaint) const {
    throw DataError(fmt::format("{}: {}", where_, complaint));
  }

 private:
  const Json& value_;
  std::string where_;
};

void check_format(const Node& node, std::string_view format) {
  if (node.at("format").text() != format) {
    node.at("format").refuse(fmt::format("is '{}', not '{}'", node.at("format").text(), format));
  }
  if (node.at("version").count() != kVersion) {
    node.at("version").refuse(
        fmt::format("is {}, but this program reads version {}; use the program that wrote it",
                    node.at("version").count(), kVersion));
  }
}

Json json_of(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}};
}

FileRecord file_from(const Node& node) {
  FileRecord file{node.at("name").text(), node.at("bytes").count(), node.at("digest").text()};
  if (file.name.empty() || file.name.find('/') != std::string::npos ||
      file.name.find('\0') != std::string::npos || file.name == "..") {
    node.at("name").refuse(fmt::format("'{}' is not the name of a file in the folder", file.name));
  }
  return file;
}

Json json_of(Range range) { return Json::array({range.begin, range.end}); }

Range range_from(const Node& node) {
  const std::vector<Node> ends = node.list();
  if (ends.size() != 2) {
    node.refuse("is not a pair");
  }
  return {ends[0].count(), ends[1].count()};
}

Json json_of(const PieceRecord& piece) {
  Json box = Json::array();
  for (const Range& side : piece.range.box) {
    box.push_back(json_of(side));
  }
  return {{"tensor", piece.tensor.tensor},
          {"state", piece.tensor.state},
          {"dtype", to_text(piece.tensor.dtype)},
          {"shape", piece.tensor.shape},
          {"box", std::move(box)},
          {"elements", json_of(piece.range.elements)}};
}

DType dtype_from(const Node& node) {
  try {
    return dtype_from_text(node.text());
  } catch (const ConfigError& error) {
    node.refuse(error.what());
  }
}

Shape shape_from(const Node& node) {
  Shape shape;
  for (const Node& dim : node.list()) {
    shape.push_back(dim.count());
  }
  try {
    (void)elements(shape);
  } catch (const ConfigError& error) {
    node.refuse(error.what());
  }
  return shape;
}

PieceRecord piece_from(const Node& node) {
  PieceRecord piece{{node.at("tensor").text(), node.at("state").text(),
                     dtype_from(node.at("dtype")), shape_from(node.at("shape"))},
                    {}};
  for (const Node& side : node.at("box").list()) {
    piece.range.box.push_back(range_from(side));
  }
  piece.range.elements = range_from(node.at("elements"));
  if (const auto fault = misfit(piece.range, piece.tensor.shape)) {
    node.refuse(fmt::format("{} of '{}': {}", piece.tensor.state, piece.tensor.tensor, *fault));
  }
  return piece;
}

Json json_of(const TrainingState& state) {
  return {{"step", state.step},
          {"updates", state.updates},
          {"consumed_samples", state.consumed_samples},
          {"skipped_steps", state.skipped_steps},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"seed", state.seed},
          {"loss_scale", state.loss_scale},
          {"extra", state.extra}};
}

TrainingState state_from(const Node& node) {
  return {node.at("step").count(),
          node.at("updates").count(),
          node.at("consumed_samples").count(),
          node.at("skipped_steps").count(),
          node.at("skipped_in_a_row").count(),
          node.at("seed").word(),
          node.at("loss_scale").number(),
          node.at("extra").json()};
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:06}", step); }
std::string rank_data_name(std::int64_t rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}
std::string rank_mark_name(std::int64_t rank) { return fmt::format("rank-{:05}.json", rank); }

std::string stored_name(const StateTensor& tensor, std::size_t position) {
  return fmt::format("{}/{}/{}", tensor.state, tensor.tensor, position);
}

std::string to_json_text(const RankMark& mark) {
  Json pieces = Json::array();
  for (const PieceRecord& piece : mark.pieces) {
    pieces.push_back(json_of(piece));
  }
  const Json json{{"format", kMarkFormat},      {"version", kVersion},
                  {"rank", mark.rank},          {"step", mark.step},
                  {"data", json_of(mark.data)}, {"pieces", std::move(pieces)}};
  return json.dump(1) + "\n";
}

std::string to_json_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back(json_of(file));
  }
  Json json{{"format", kManifestFormat},
            {"version", kVersion},
            {"run", manifest.run},
            {"ranks", manifest.ranks},
            {"state", json_of(manifest.state)},
            {"files", std::move(files)}};
  json["checksum"] = to_text(hash128(json.dump()));
  return json.dump(1) + "\n";
}

RankMark rank_mark_from(std::string_view text, std::string_view where) {
  const Json json = parse_json(text, where);
  const Node node(json, std::string(where));
  check_format(node, kMarkFormat);
  RankMark mark{node.at("rank").count(), node.at("step").count(), file_from(node.at("data")), {}};
  for (const Node& piece : node.at("pieces").list()) {
    mark.pieces.push_back(piece_from(piece));
  }
  return mark;
}

Manifest manifest_from(std::string_view text, std::string_view where) {
  Json json = parse_json(text, where);
  const Node node(json, std::string(where));
  check_format(node, kManifestFormat);
  const std::string stated = node.at("checksum").text();
  json.erase("checksum");
  if (to_text(hash128(json.dump())) != stated) {
    node.refuse("does not match its own checksum: it was damaged or edited");
  }
  Manifest manifest{
      node.at("run").text(), node.at("ranks").count(), state_from(node.at("state")), {}};
  for (const Node& file : node.at("files").list()) {
    manifest.files.push_back(file_from(file));
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kManifestName;
  return manifest_from(read_whole_file(path, kMaxCheckpointJson), path.string());
}

}  // namespace sw
