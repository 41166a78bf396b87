#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sw {

/// Offset of the first byte that is not part of valid UTF-8 (Unicode 15, table 3-7: no overlong
/// forms, no surrogates, nothing above U+10FFFF); `text.size()` when all is valid.
[[nodiscard]] std::size_t first_invalid_utf8(std::string_view text);

/// The start of a text from outside, on one line and safe to print: control characters, and in
/// invalid text all but ASCII, become '?'.
[[nodiscard]] std::string excerpt(std::string_view text, std::size_t most = 60);

}  // namespace sw
