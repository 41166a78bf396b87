#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sw {

/// Levenshtein distance: insertions, deletions and replacements of one character. For messages that
/// suggest the nearest known word.
[[nodiscard]] inline std::int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::int64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = static_cast<std::int64_t>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace sw
