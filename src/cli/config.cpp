#include "cli/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "cli/keys.hpp"
#include "cli/resolve.hpp"

namespace sw {
namespace {

constexpr std::int64_t kLargestRunFile = 16 << 20;

/// A TOML value as JSON; the one use is [model.config].
Json to_json(const toml::node& node, const std::string& where) {
  if (const auto* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [name, value] : *table) {
      object[std::string(name.str())] = to_json(value, where);
    }
    return object;
  }
  if (const auto* array = node.as_array()) {
    Json list = Json::array();
    for (const auto& value : *array) {
      list.push_back(to_json(value, where));
    }
    return list;
  }
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* integer = node.as_integer()) {
    return integer->get();
  }
  if (const auto* number = node.as_floating_point()) {
    return number->get();
  }
  if (const auto* boolean = node.as_boolean()) {
    return boolean->get();
  }
  throw ConfigError(
      fmt::format("{}: dates and times have no place in a model configuration", where));
}

std::string shown(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

/// Decodes one value into one field; `where` is "run.toml:12: parallel.tp".
class Decoder {
 public:
  Decoder(const Key& key, const toml::node& node, std::string where)
      : key_(key), node_(node), where_(std::move(where)) {}

  void operator()(bool* out) const { *out = get<bool>(node_); }
  void operator()(int* out) const { *out = static_cast<int>(integer(node_)); }
  void operator()(std::int64_t* out) const { *out = integer(node_); }
  void operator()(std::uint64_t* out) const { *out = static_cast<std::uint64_t>(integer(node_)); }
  void operator()(double* out) const { *out = number(node_); }
  void operator()(std::string* out) const { *out = get<std::string>(node_); }
  void operator()(std::array<double, 2>* out) const {
    const toml::array& list = array();
    if (list.size() != 2) {
      wrong_type();
    }
    *out = {number(list[0]), number(list[1])};
  }
  void operator()(std::vector<std::string>* out) const {
    out->clear();
    for (const auto& element : array()) {
      out->push_back(get<std::string>(element));
    }
  }
  void operator()(std::vector<int>* out) const {
    out->clear();
    for (const auto& element : array()) {
      out->push_back(static_cast<int>(integer(element)));
    }
  }
  void operator()(ChoiceField out) const { *out.value = static_cast<std::uint8_t>(chosen()); }
  void operator()(DType* out) const { *out = dtype_from_text(key_.choices[chosen()]); }
  void operator()(TableField out) const {
    if (!node_.is_table()) {
      wrong_type();
    }
    *out.json = to_json(node_, where_).dump();
  }

 private:
  [[noreturn]] void wrong_type() const {
    throw ConfigError(
        fmt::format("{} = {} has the wrong type; expected: {}", where_, shown(node_), key_.type()));
  }

  template <typename T>
  T get(const toml::node& node) const {
    const auto value = node.value_exact<T>();
    if (!value) {
      wrong_type();
    }
    return *value;
  }

  const toml::array& array() const {
    const auto* list = node_.as_array();
    if (list == nullptr) {
      wrong_type();
    }
    return *list;
  }

  std::int64_t integer(const toml::node& node) const {
    const auto value = get<std::int64_t>(node);
    check_bounds(static_cast<double>(value));
    return value;
  }

  double number(const toml::node& node) const {
    if (!node.is_number()) {
      wrong_type();
    }
    const double value = *node.value<double>();
    check_bounds(value);
    return value;
  }

  void check_bounds(double value) const {
    const Bounds& bounds = key_.bounds;
    // Written so that NaN is refused.
    const bool inside = value >= bounds.minimum &&
                        (bounds.open ? value < bounds.maximum : value <= bounds.maximum) &&
                        value <= std::numeric_limits<double>::max();
    if (!inside) {
      const std::string upper =
          bounds.maximum == Bounds{}.maximum
              ? ""
              : fmt::format(" and {} {}", bounds.open ? "below" : "at most", bounds.maximum);
      throw ConfigError(fmt::format("{} = {} is out of range; it must be at least {}{}", where_,
                                    shown(node_), bounds.minimum, upper));
    }
  }

  std::size_t chosen() const {
    const auto text = get<std::string>(node_);
    for (std::size_t i = 0; i < key_.choices.size(); ++i) {
      if (key_.choices[i] == text) {
        return i;
      }
    }
    throw ConfigError(fmt::format("{} = \"{}\" is not known; it may be: {}", where_, text,
                                  fmt::join(key_.choices, ", ")));
  }

  const Key& key_;
  const toml::node& node_;
  std::string where_;
};

toml::table parse_toml(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: {}", file, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
}

[[noreturn]] void unknown_key(const std::string& where, std::string_view path) {
  throw ConfigError(fmt::format("{}: unknown key {}; the nearest known key is {}", where, path,
                                nearest_key(path)));
}

/// Puts `value` into `document` at a dotted path, making tables on the way.
void insert_at(toml::table& document, std::string_view path, const toml::node& value,
               const std::string& where) {
  toml::table* table = &document;
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const std::string_view head = path.substr(0, dot);
    path.remove_prefix(dot + 1);
    table->insert(head, toml::table{});
    table = table->get(head)->as_table();
    if (table == nullptr) {
      throw ConfigError(fmt::format("{}: {} is not a table", where, head));
    }
  }
  table->insert_or_assign(path, value);
}

/// Whether `path` is below a key that is a table, as model.config.hidden_size is.
bool inside_table(std::string_view path) { return path.starts_with("model.config."); }

/// `key=value` with a TOML value or a bare string.
void apply_set(toml::table& document, const std::string& set) {
  const std::string where = "--set " + set;
  const auto equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError(fmt::format("{}: expected key=value, as in --set parallel.dp=2", where));
  }
  const std::string path = set.substr(0, equals);
  const std::string text = set.substr(equals + 1);
  const Key* key = find_key(path);
  if (key == nullptr && !inside_table(path)) {
    unknown_key(where, path);
  }
  toml::table parsed;
  try {
    if (text.find('\n') == std::string::npos) {
      parsed = toml::parse("value = " + text);
    }
  } catch (const toml::parse_error&) {
    parsed.clear();  // a bare string
  }
  const bool wants_string = key != nullptr && key->type() == "string";
  const toml::node* value = parsed.get("value");
  if (value == nullptr || (wants_string && !value->is_string())) {
    parsed.insert_or_assign("value", text);
    value = parsed.get("value");
  }
  insert_at(document, path, *value, where);
}

/// "run.toml:12: parallel.tp"; a value from --set has no line.
std::string place(const std::string& file, const toml::node& node, std::string_view path) {
  const auto line = node.source().begin.line;
  const bool from_file = node.source().path != nullptr && line != 0;
  return from_file ? fmt::format("{}:{}: {}", file, line, path) : fmt::format("{}: {}", file, path);
}

/// Decodes every key of the document and returns the paths that were given.
std::set<std::string> decode(const toml::table& document, const std::string& file,
                             RunOptions& options) {
  std::set<std::string> given;
  for (const auto& [section_name, section] : document) {
    const std::string head(section_name.str());
    const auto keys = run_file_keys();
    const bool known = std::ranges::any_of(keys, [&](const Key& k) { return k.section == head; });
    const toml::table* table = section.as_table();
    if (!known || table == nullptr) {
      unknown_key(fmt::format("{}:{}", file, section.source().begin.line), head);
    }
    for (const auto& [name, node] : *table) {
      const std::string path = fmt::format("{}.{}", head, name.str());
      const Key* key = find_key(path);
      if (key == nullptr) {
        unknown_key(fmt::format("{}:{}", file, node.source().begin.line), path);
      }
      std::visit(Decoder(*key, node, place(file, node, path)), key->field(options));
      given.insert(path);
    }
  }
  return given;
}

/// Relative paths of a run file start at its folder, those of --set at the current directory. Kept
/// absolute, they mean the same in the run folder's run.toml.
void make_absolute(RunOptions& options, const std::string& file,
                   std::span<const std::string> sets) {
  const std::filesystem::path here = std::filesystem::current_path();
  const std::filesystem::path folder = (here / file).parent_path();
  const auto absolute = [&](std::string_view key, std::string& path) {
    const bool set = std::ranges::any_of(
        sets, [&](const std::string& text) { return text.starts_with(fmt::format("{}=", key)); });
    path = ((set ? here : folder) / path).lexically_normal().string();
  };
  for (std::string& pattern : options.data.train) {
    absolute("data.train", pattern);
  }
  for (std::string& pattern : options.data.validation) {
    absolute("data.validation", pattern);
  }
  if (options.data.tokenizer != "bytes") {
    absolute("data.tokenizer", options.data.tokenizer);
  }
  if (!options.parallel.pipeline_file.empty()) {
    absolute("parallel.pipeline_file", options.parallel.pipeline_file);
  }
  if (!options.model.path.empty()) {
    absolute("model.path", options.model.path);
  }
}

}  // namespace

RunOptions parse_run_options(std::string_view text, const std::string& file,
                             std::span<const std::string> sets, int world) {
  toml::table document = parse_toml(text, file);
  for (const std::string& set : sets) {
    apply_set(document, set);
  }
  RunOptions options;
  const std::set<std::string> given = decode(document, file, options);
  resolve(options, {file, given, world});
  return options;
}

RunOptions read_run_file(const std::string& path, std::span<const std::string> sets, int world) {
  if (!std::filesystem::is_regular_file(path)) {
    throw ConfigError(fmt::format("{}: there is no such run file", path));
  }
  std::string text;
  try {
    text = read_whole_file(path, kLargestRunFile);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  RunOptions options = parse_run_options(text, path, sets, world);
  make_absolute(options, path, sets);
  return options;
}

std::string with_file(const std::string& file, const std::string& message) {
  for (const std::string_view section :
       {"model.", "data.", "train.", "optimizer.", "parallel.", "checkpoint."}) {
    if (message.starts_with(section)) {
      return fmt::format("{}: {}", file, message);
    }
  }
  return message;
}

}  // namespace sw
