#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sw {

using Json = nlohmann::ordered_json;

/// Parses one JSON document. Refused with DataError naming `where` and the byte: syntax errors,
/// duplicate keys, invalid UTF-8, nesting deeper than `max_depth`.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where, int max_depth = 64);

}  // namespace sw
