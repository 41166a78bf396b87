#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sw {

/// The files that patterns name: `*`, `?` and `[…]` as in a shell, or a plain path; relative to
/// `base`. In the order of the patterns, and sorted by byte within one. ConfigError, naming `key`,
/// for a pattern that matches nothing or a folder, and for a file that is named twice.
[[nodiscard]] std::vector<std::filesystem::path> files_matching(
    const std::string& key, const std::vector<std::string>& patterns,
    const std::filesystem::path& base);

}  // namespace sw
