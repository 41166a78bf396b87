#include "data/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace sw {
namespace {

/// Bytes of the valid sequence at the start of `text`, 0 when there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) {
    return 0;
  }
  // The second byte is what keeps out overlong forms, surrogates and values above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  return length;
}

bool eight_ascii_bytes(const char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return (word & 0x8080808080808080U) == 0;
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && eight_ascii_bytes(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

std::string excerpt(std::string_view text, std::size_t most) {
  std::string_view start = text.substr(0, most);
  if (start.size() < text.size()) {
    // Cut no character in two: a valid text leaves at most three bytes of one behind.
    const std::size_t valid = first_invalid_utf8(start);
    start = start.size() - valid < 4 ? start.substr(0, valid) : start;
  }
  const bool valid = first_invalid_utf8(start) == start.size();
  std::string shown(start);
  for (char& letter : shown) {
    const auto code = static_cast<unsigned char>(letter);
    if (code < ' ' || code == 0x7F || (code >= 0x80 && !valid)) {
      letter = '?';
    }
  }
  return start.size() < text.size() ? shown + "..." : shown;
}

}  // namespace sw
