#include "cli/machine.hpp"

#include <toml++/toml.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"

namespace sw {
namespace {

struct Field {
  const char* name;
  double Machine::*member;
};
constexpr std::array<Field, 6> kFields{{
    {"flops_per_s", &Machine::flops_per_s},
    {"memory_bytes_per_s", &Machine::memory_bytes_per_s},
    {"link_bytes_per_s", &Machine::link_bytes_per_s},
    {"link_latency_s", &Machine::link_latency_s},
    {"instruction_s", &Machine::instruction_s},
    {"peak_flops_per_s", &Machine::peak_flops_per_s},
}};

}  // namespace

std::string cached_machine_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base = cache != nullptr  ? std::filesystem::path(cache)
                                     : home != nullptr ? std::filesystem::path(home) / ".cache"
                                                       : std::filesystem::path("/tmp");
  return (base / "shardwright" / "cluster.toml").string();
}

Machine default_machine() {
  const std::string path = cached_machine_path();
  return is_there(path) ? read_machine(path) : Machine{};
}

Machine read_machine(const std::string& path) {
  Machine machine;
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.description()));
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (name == "name" && node.is_string()) {
      machine.name = *node.value<std::string>();
      continue;
    }
    bool known = false;
    for (const Field& field : kFields) {
      const auto value = node.value<double>();
      if (name == field.name && value.has_value() && *value >= 0) {
        machine.*field.member = *value;
        known = true;
      }
    }
    if (!known) {
      throw ConfigError(fmt::format(
          "{}: '{}' is no key of a cluster file, or no number of at least 0", path, name));
    }
  }
  return machine;
}

std::string to_toml(const Machine& machine) {
  std::string text = fmt::format(
      "# What one rank of this machine does; written by `shardwright calibrate`.\nname = \"{}\"\n",
      machine.name);
  for (const Field& field : kFields) {
    text += fmt::format("{} = {:e}\n", field.name, machine.*field.member);
  }
  return text;
}

}  // namespace sw
