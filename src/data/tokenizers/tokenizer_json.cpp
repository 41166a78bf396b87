#include "data/tokenizers/tokenizer_json.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;
/// What a ByteLevel pre-tokenizer with `use_regex` cuts by (GPT-2).
constexpr std::string_view kByteLevelExpression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A value of the file with its place, so that every refusal says where.
class Node {
 public:
  Node(const Json* value, std::string where) : value_(value), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& reason) const {
    throw ConfigError(fmt::format("{} {}", where_, reason));
  }
  [[noreturn]] void refuse_as_new() const {
    refuse(fmt::format("= {} is not in this version; byte-level BPE as of GPT-2 and Llama 3 is",
                       value_->dump().substr(0, 60)));
  }
  /// Null when absent.
  [[nodiscard]] Node operator[](const char* key) const {
    static const Json kNull;
    if (!value_->is_object()) {
      refuse("is no object");
    }
    const auto found = value_->find(key);
    return {found == value_->end() ? &kNull : &*found, fmt::format("{}.{}", where_, key)};
  }
  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] const Json& json() const { return *value_; }

  [[nodiscard]] const std::string& string() const {
    if (!value_->is_string()) {
      refuse("is no string");
    }
    return value_->get_ref<const std::string&>();
  }
  [[nodiscard]] bool flag(bool absent) const {
    if (!value_->is_null() && !value_->is_boolean()) {
      refuse("is neither true nor false");
    }
    return value_->is_null() ? absent : value_->get<bool>();
  }
  [[nodiscard]] std::int32_t id() const {
    // One less than the largest number, so that a vocabulary's size fits too.
    if (!value_->is_number_unsigned() ||
        value_->get<std::uint64_t>() >= std::numeric_limits<std::int32_t>::max()) {
      refuse(fmt::format("= {} is no token id", value_->dump().substr(0, 60)));
    }
    return value_->get<std::int32_t>();
  }
  /// Calls `function` with each element; null has none.
  void for_each(const std::function<void(const Node&)>& function) const {
    if (!value_->is_null() && !value_->is_array()) {
      refuse("is no array");
    }
    for (std::size_t i = 0; i < value_->size(); ++i) {
      function(Node(&(*value_)[i], fmt::format("{}[{}]", where_, i)));
    }
  }

 private:
  const Json* value_;
  std::string where_;
};

void read_vocabulary(const Node& model, TokenizerFile& file) {
  const Node vocabulary = model["vocab"];
  if (!vocabulary.json().is_object()) {
    vocabulary.refuse("is no object of tokens and ids");
  }
  for (const auto& [token, id] : vocabulary.json().items()) {
    file.vocabulary.emplace_back(token, Node(&id, "model.vocab." + token).id());
  }
}

/// "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_of(const Node& node) {
  if (node.json().is_array() && node.json().size() == 2) {
    std::array<std::string, 2> parts;
    std::size_t i = 0;
    node.for_each([&](const Node& part) { parts.at(i++) = part.string(); });
    return {parts[0], parts[1]};
  }
  const std::string& text = node.string();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    node.refuse("does not hold two tokens");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_model(const Node& model, TokenizerFile& file) {
  if (model["type"].is_null() || model["type"].string() != "BPE") {
    model["type"].refuse_as_new();
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model[key].is_null() && !model[key].string().empty()) {
      model[key].refuse_as_new();
    }
  }
  if (!model["dropout"].is_null() && model["dropout"].json() != 0.0) {
    model["dropout"].refuse_as_new();
  }
  if (model["byte_fallback"].flag(false)) {
    model["byte_fallback"].refuse_as_new();
  }
  file.whole_words_first = model["ignore_merges"].flag(false);
  read_vocabulary(model, file);
  model["merges"].for_each([&](const Node& merge) { file.merges.push_back(merge_of(merge)); });
}

/// Adds the expressions of one pre-tokenizer; true when it is the one that makes letters of bytes.
bool read_pre_tokenizer(const Node& node, TokenizerFile& file) {
  const std::string& type = node["type"].string();
  if (type == "ByteLevel") {
    if (node["add_prefix_space"].flag(true)) {
      node["add_prefix_space"].refuse("= true is not in this version");
    }
    if (node["use_regex"].flag(true)) {
      file.expressions.emplace_back(kByteLevelExpression);
    }
    return true;
  }
  if (type == "Split") {
    if (node["behavior"].string() != "Isolated") {
      node["behavior"].refuse_as_new();
    }
    if (node["invert"].flag(false)) {
      node["invert"].refuse_as_new();
    }
    if (node["pattern"]["Regex"].is_null()) {
      node["pattern"].refuse_as_new();
    }
    file.expressions.push_back(node["pattern"]["Regex"].string());
    return false;
  }
  if (type == "Digits") {
    file.expressions.emplace_back(node["individual_digits"].flag(false) ? R"(\p{N})" : R"(\p{N}+)");
    return false;
  }
  node["type"].refuse_as_new();
}

void read_pre_tokenizers(const Node& root, TokenizerFile& file) {
  const Node node = root["pre_tokenizer"];
  if (node.is_null()) {
    node.refuse_as_new();
  }
  bool byte_level = false;
  const auto read = [&](const Node& each) {
    if (byte_level) {
      each.refuse("comes after ByteLevel, which is not in this version");
    }
    byte_level = read_pre_tokenizer(each, file);
  };
  if (node["type"].string() == "Sequence") {
    node["pretokenizers"].for_each(read);
  } else {
    read(node);
  }
  if (!byte_level) {
    node.refuse("has no ByteLevel; tokenizers that do not work on bytes are not in this version");
  }
}

void read_added(const Node& node, TokenizerFile& file) {
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    if (node[key].flag(false)) {
      node[key].refuse("= true is not in this version");
    }
  }
  if (node["content"].string().empty()) {
    node["content"].refuse("is empty");
  }
  file.added.push_back({node["content"].string(), node["id"].id(), node["special"].flag(false)});
}

std::optional<std::int32_t> id_of(const TokenizerFile& file, const std::string& content) {
  for (const auto& added : file.added) {
    if (added.content == content) {
      return added.id;
    }
  }
  for (const auto& [token, id] : file.vocabulary) {
    if (token == content) {
      return id;
    }
  }
  return std::nullopt;
}

using Names = std::initializer_list<const char*>;

std::optional<std::int32_t> first_of(const TokenizerFile& file, Names names) {
  for (const char* name : names) {
    const auto added = std::ranges::find(file.added, name, &TokenizerFile::Added::content);
    if (added != file.added.end()) {
      return added->id;
    }
  }
  return std::nullopt;
}

Json parse(const fs::path& path, std::string& content) {
  try {
    content = read_whole_file(path, kLargestFile);
    return parse_json(content, path.string());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

/// `key` of a tokenizer_config.json: a string, or an object with the string as "content".
std::optional<std::int32_t> configured(const TokenizerFile& file, const Node& config,
                                       const char* key) {
  const Node node = config[key];
  if (node.is_null()) {
    return std::nullopt;
  }
  const Node content = node.json().is_object() ? node["content"] : node;
  const auto id = id_of(file, content.string());
  if (!id) {
    content.refuse(fmt::format("= \"{}\" is no token of tokenizer.json", content.string()));
  }
  return id;
}

void find_special(const fs::path& path, TokenizerFile& file) {
  const fs::path config_path = path.parent_path() / "tokenizer_config.json";
  std::error_code ignored;
  if (fs::exists(config_path, ignored)) {
    std::string content;
    const Json json = parse(config_path, content);
    const Node config(&json, config_path.string() + ": ");
    file.special = {.begin = configured(file, config, "bos_token"),
                    .end = configured(file, config, "eos_token"),
                    .padding = configured(file, config, "pad_token")};
    return;
  }
  file.special = {.begin = first_of(file, {"<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"}),
                  .end = first_of(file, {"<|end_of_text|>", "</s>", "<eos>", "<|endoftext|>"}),
                  .padding = first_of(file, {"<pad>", "[PAD]", "<|pad|>"})};
}

}  // namespace

TokenizerFile read_tokenizer_json(const fs::path& path) {
  TokenizerFile file;
  std::string content;
  const Json json = parse(path, content);
  file.name = fmt::format("tokenizer.json-{:016x}", hash64(std::as_bytes(std::span(content))));
  const Node root(&json, path.string() + ": ");
  if (!root["normalizer"].is_null()) {
    root["normalizer"].refuse_as_new();
  }
  read_model(root["model"], file);
  read_pre_tokenizers(root, file);
  root["added_tokens"].for_each([&](const Node& node) { read_added(node, file); });
  find_special(path, file);
  return file;
}

}  // namespace sw
