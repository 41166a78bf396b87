#pragma once

#include <string>

namespace sw {

/// What the commands know of the process's surroundings; read once, at start.
struct Environment {
  /// "mpirun (OMPI_COMM_WORLD_SIZE = 4)" when something else started several of us; else empty.
  std::string launcher;
  bool terminal = false;  ///< standard error is a terminal
  int cores = 1;          ///< that this process may use
};

/// `variable` gives an environment variable's value, or nullptr.
[[nodiscard]] std::string find_launcher(const char* (*variable)(const char* name));
[[nodiscard]] Environment read_environment();

/// Throws ConfigError in one sentence when there is a launcher.
void refuse_launcher(const Environment& environment);

}  // namespace sw
