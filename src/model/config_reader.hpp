#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace sw {

/// Reads the keys of one JSON object and remembers which were asked for, so that what is left over
/// can be refused. A null value is an absent key, as in `transformers`.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string where);

  [[nodiscard]] bool has(std::string_view key);
  /// Also true for a null.
  [[nodiscard]] bool present(std::string_view key) const;
  /// A whole number from `lowest` to 2^31 - 1; `fallback` if absent.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback,
                                     std::int64_t lowest = 1);
  /// A finite number above 0.
  [[nodiscard]] double positive(std::string_view key, double fallback);
  /// At least 0 and below 1.
  [[nodiscard]] double rate(std::string_view key, double fallback);
  [[nodiscard]] bool boolean(std::string_view key, bool fallback);
  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback);
  /// The value itself; a null if absent.
  [[nodiscard]] const Json& value(std::string_view key);

  /// Refuses `key` unless it is absent or has this value, the only one supported.
  void only(std::string_view key, const Json& supported);
  /// These keys do not change the computation.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Refuses the keys that nobody asked for, naming the nearest known one.
  void finish() const;

  [[nodiscard]] const std::string& where() const { return where_; }
  /// Throws ConfigError: "where: key = value is …".
  [[noreturn]] void refuse(std::string_view key, std::string_view reason);

 private:
  const Json* find(std::string_view key);
  [[nodiscard]] std::string nearest(std::string_view key) const;

  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

/// A JSON value for a message, cut short.
[[nodiscard]] std::string shown(const Json& value);

}  // namespace sw
