#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/run_options.hpp"

namespace sw {

/// An enum whose enumerators stand in the order of `Key::choices`.
struct ChoiceField {
  std::uint8_t* value;
};
/// A TOML table kept as JSON text.
struct TableField {
  std::string* json;
};

/// Where a key's value lives; the alternative is its type.
using Field = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*,
                           std::array<double, 2>*, std::string*, std::vector<std::string>*,
                           std::vector<int>*, ChoiceField, DType*, TableField>;

/// Bounds of a number, inclusive; `maximum` itself is excluded when `open`.
struct Bounds {
  double minimum = 0;
  double maximum = 0x1p63;  ///< the default: whatever fits
  bool open = false;
};

/// One key of a run file. Parser, writer and documentation read this table and nothing else.
struct Key {
  std::string_view section;
  std::string_view name;
  Field (*field)(RunOptions&);
  std::string_view doc;
  std::vector<std::string_view> choices = {};
  Bounds bounds = {};

  [[nodiscard]] std::string path() const;  ///< "parallel.tp"
  [[nodiscard]] std::string type() const;  ///< "integer", "list of strings", …
};

/// All keys, in the order of the documentation.
[[nodiscard]] std::span<const Key> run_file_keys();
/// The key of that path, or nullptr.
[[nodiscard]] const Key* find_key(std::string_view path);
/// The known path most like `path`, by edit distance; a key of the same name in another section is
/// closest.
[[nodiscard]] std::string nearest_key(std::string_view path);
/// The value as TOML.
[[nodiscard]] std::string to_toml(const Key& key, RunOptions& options);

}  // namespace sw
