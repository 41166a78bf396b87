#include "model/config_reader.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/edit_distance.hpp"
#include "base/error.hpp"

namespace sw {

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 120;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "…" : text;
}

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    throw ConfigError(fmt::format("{}: a model's configuration is one JSON object, not {}", where_,
                                  shown(object)));
  }
}

const Json* ConfigReader::find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
    known_.emplace_back(key);
  }
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::refuse(std::string_view key, std::string_view reason) {
  const Json* found = find(key);
  throw ConfigError(fmt::format("{}: {} = {} {}", where_, key,
                                found == nullptr ? "null" : shown(*found), reason));
}

bool ConfigReader::has(std::string_view key) { return find(key) != nullptr; }

bool ConfigReader::present(std::string_view key) const { return object_.contains(key); }

const Json& ConfigReader::value(std::string_view key) {
  static const Json kAbsent;
  const Json* found = find(key);
  return found == nullptr ? kAbsent : *found;
}

std::int64_t ConfigReader::integer(std::string_view key, std::int64_t fallback,
                                   std::int64_t lowest) {
  constexpr std::int64_t kHighest = std::numeric_limits<std::int32_t>::max();
  const Json* found = find(key);
  if (found == nullptr) {
    return fallback;
  }
  const bool whole = found->is_number_integer();
  const bool fits = whole && (!found->is_number_unsigned() ||
                              found->get<std::uint64_t>() <= static_cast<std::uint64_t>(kHighest));
  if (!fits || found->get<std::int64_t>() < lowest || found->get<std::int64_t>() > kHighest) {
    refuse(key, fmt::format("must be a whole number from {} to {}", lowest, kHighest));
  }
  return found->get<std::int64_t>();
}

double ConfigReader::positive(std::string_view key, double fallback) {
  const Json* found = find(key);
  if (found == nullptr) {
    return fallback;
  }
  if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() <= 0) {
    refuse(key, "must be a number above 0");
  }
  return found->get<double>();
}

double ConfigReader::rate(std::string_view key, double fallback) {
  const Json* found = find(key);
  if (found == nullptr) {
    return fallback;
  }
  if (!found->is_number() || !(found->get<double>() >= 0) || !(found->get<double>() < 1)) {
    refuse(key, "must be at least 0 and below 1");
  }
  return found->get<double>();
}

bool ConfigReader::boolean(std::string_view key, bool fallback) {
  const Json* found = find(key);
  if (found != nullptr && !found->is_boolean()) {
    refuse(key, "must be true or false");
  }
  return found == nullptr ? fallback : found->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::string_view fallback) {
  const Json* found = find(key);
  if (found != nullptr && !found->is_string()) {
    refuse(key, "must be a text");
  }
  return found == nullptr ? std::string(fallback) : found->get<std::string>();
}

void ConfigReader::only(std::string_view key, const Json& supported) {
  const Json* found = find(key);
  if (found != nullptr && *found != supported) {
    refuse(key,
           fmt::format("is not in this version; it can only be {} or left out", shown(supported)));
  }
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    find(key);
  }
}

std::string ConfigReader::nearest(std::string_view key) const {
  std::string best;
  // Farther than a third of the word is no slip of the hand.
  std::int64_t distance = static_cast<std::int64_t>(key.size()) / 3 + 1;
  for (const std::string& known : known_) {
    const std::int64_t here = edit_distance(key, known);
    if (here < distance) {
      distance = here;
      best = known;
    }
  }
  return best;
}

void ConfigReader::finish() const {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object_.items()) {
    const bool private_key = key.starts_with('_');  // the library's own notes: _name_or_path, …
    if (private_key || std::find(known_.begin(), known_.end(), key) != known_.end()) {
      continue;
    }
    const std::string near = nearest(key);
    unknown.push_back(
        near.empty() ? fmt::format("{} = {}", key, shown(value))
                     : fmt::format("{} = {} (nearest known key: {})", key, shown(value), near));
  }
  if (!unknown.empty()) {
    throw ConfigError(fmt::format(
        "{}: unknown {} {}; what it does to the model is not known here, so take it out if it "
        "does nothing",
        where_, unknown.size() == 1 ? "key" : "keys", fmt::join(unknown, ", ")));
  }
}

}  // namespace sw
