#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <sstream>

#include "base/json.hpp"
#include "cli/config.hpp"
#include "cli/keys.hpp"

namespace sw {
namespace {

void put(toml::table& table, const std::string& name, const Json& value);

void append(toml::array& array, const Json& value) {
  toml::table holder;
  put(holder, "value", value);
  array.push_back(*holder.get("value"));
}

void put(toml::table& table, const std::string& name, const Json& value) {
  if (value.is_object()) {
    toml::table inner;
    for (const auto& [key, element] : value.items()) {
      put(inner, key, element);
    }
    table.insert_or_assign(name, std::move(inner));
  } else if (value.is_array()) {
    toml::array inner;
    for (const auto& element : value) {
      append(inner, element);
    }
    table.insert_or_assign(name, std::move(inner));
  } else if (value.is_string()) {
    table.insert_or_assign(name, value.get<std::string>());
  } else if (value.is_boolean()) {
    table.insert_or_assign(name, value.get<bool>());
  } else if (value.is_number_integer()) {
    table.insert_or_assign(name, value.get<std::int64_t>());
  } else if (value.is_number()) {
    table.insert_or_assign(name, value.get<double>());
  }  // null: TOML has no such value, and an absent key means the same in a config.json
}

/// [model.config] with the tables inside it.
std::string config_section(const std::string& json) {
  toml::table config;
  put(config, "config", parse_json(json, "[model.config]"));
  toml::table model;
  model.insert("model", std::move(config));
  std::ostringstream out;
  out << model;
  return fmt::format("\n{}\n", out.str());
}

bool is_table(const Key& key) { return key.type() == "table"; }

/// A model names one source; the other two are left out rather than written as empty.
bool is_left_out(const Key& key, const std::string& value) {
  return is_table(key) || (key.section == "model" && value == "\"\"");
}

std::string choices(const Key& key) {
  return key.choices.empty() ? "" : fmt::format(" One of {}.", fmt::join(key.choices, ", "));
}

}  // namespace

std::string to_toml(const RunOptions& options) {
  RunOptions copy = options;
  std::string out;
  std::string_view section;
  for (const Key& key : run_file_keys()) {
    if (key.section != section) {
      if (section == "model" && !options.model.config.empty()) {
        out += config_section(options.model.config);
      }
      section = key.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    const std::string value = to_toml(key, copy);
    if (!is_left_out(key, value)) {
      out += fmt::format("{} = {}\n", key.name, value);
    }
    if (key.path() == "train.micro_batch") {
      out += fmt::format("# accumulation = {}\n", options.train.accumulation);
    }
  }
  return out;
}

std::string run_file_reference() {
  RunOptions defaults;
  std::string out =
      "# The run file\n\n"
      "TOML. Unknown keys are errors that suggest the nearest known key; every key can be set on "
      "the command line with `--set key=value`, where the value is TOML or a bare string. What is "
      "not built yet is refused by name.\n\n"
      "Written by `shardwright reference run-file` from the table in `src/cli/keys.cpp`; a test "
      "holds this page to it.\n";
  std::string_view section;
  for (const Key& key : run_file_keys()) {
    if (key.section != section) {
      section = key.section;
      out += fmt::format("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                         section);
    }
    const std::string value = is_table(key) ? "" : fmt::format("`{}`", to_toml(key, defaults));
    out += fmt::format("| `{}` | {} | {} | {}{} |\n", key.name, key.type(), value, key.doc,
                       choices(key));
  }
  return out;
}

}  // namespace sw
