#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "train/run_options.hpp"

/// Run files: TOML to RunOptions and back. Everything here is strict and throws ConfigError naming
/// file and key.
namespace sw {

/// Reads `text` (of `file`, for messages), applies the `key=value` of `sets` in order (a TOML value
/// or a bare string), resolves what follows from the rest (dp = 0, accumulation, reduce_gradients,
/// steps or epochs) and checks ranges and contradictions. `world` is the number of ranks asked for;
/// 0 = what the layout says.
[[nodiscard]] RunOptions parse_run_options(std::string_view text, const std::string& file,
                                           std::span<const std::string> sets = {}, int world = 0);

/// The same from a file; one that is missing is a ConfigError too. Relative paths become absolute:
/// those of the file from its folder, those of `sets` from the current directory.
[[nodiscard]] RunOptions read_run_file(const std::string& path,
                                       std::span<const std::string> sets = {}, int world = 0);

/// Refuses by name what this version does not do: "parallel.pp = 2: pipeline parallelism is not in
/// this version". `file` is for the message.
void refuse_unsupported(const RunOptions& options, const std::string& file);

/// "run.toml: parallel.tp = 6 does not divide …": a message that begins with a key, with the file
/// before it.
[[nodiscard]] std::string with_file(const std::string& file, const std::string& message);

/// Runs `body`; what it refuses about a key names the file too.
template <typename Body>
auto naming_file(const std::string& file, const Body& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    throw ConfigError(with_file(file, error.what()));
  }
}

/// A run file that reads back as the same options.
[[nodiscard]] std::string to_toml(const RunOptions& options);

/// docs/run-file.md: every key with type, default and meaning, from the table of keys.
[[nodiscard]] std::string run_file_reference();

}  // namespace sw
