#pragma once

#include <string>

#include "simulate/simulate.hpp"

namespace sw {

/// The machine that predictions are for when no cluster file is given: what `calibrate` last
/// measured here, else the defaults.
[[nodiscard]] Machine default_machine();
/// Reads a cluster file, as `calibrate` writes it. Throws ConfigError naming file and key.
[[nodiscard]] Machine read_machine(const std::string& path);
/// Where `calibrate` keeps its measurement: $XDG_CACHE_HOME or ~/.cache, then
/// shardwright/cluster.toml.
[[nodiscard]] std::string cached_machine_path();
[[nodiscard]] std::string to_toml(const Machine& machine);

}  // namespace sw
