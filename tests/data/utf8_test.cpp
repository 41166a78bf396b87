#include "data/utf8.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace sw {
namespace {

/// UTF-8 by its definition: the bits of the code point spread over 1 to 4 bytes (RFC 3629).
std::string encoded(std::uint32_t code, int bytes) {
  constexpr std::uint32_t kLead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (int i = bytes - 1; i > 0; --i) {
    text[static_cast<std::size_t>(i)] = static_cast<char>(0x80 | (code & 0x3F));
    code >>= 6U;
  }
  text[0] = static_cast<char>(kLead[bytes] | code);
  return text;
}

int shortest(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

TEST(Utf8, EveryCodePointIsValidInItsShortestFormOnlyAndSurrogatesNever) {
  for (std::uint32_t code = 0; code <= 0x1FFFFF; ++code) {
    for (int bytes = 1; bytes <= 4; ++bytes) {
      const std::uint32_t capacity = bytes == 1 ? 0x80U : 1U << (5 * bytes + 1);
      if (code >= capacity) {
        continue;
      }
      const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
      const bool valid = bytes == shortest(code) && code <= 0x10FFFF && !surrogate;
      const std::string text = encoded(code, bytes);
      ASSERT_EQ(first_invalid_utf8(text), valid ? text.size() : 0)
          << "code point " << code << " in " << bytes << " bytes";
    }
  }
}

TEST(Utf8, TheFirstBadByteIsFoundAfterAnyNumberOfGoodOnes) {
  for (std::size_t before = 0; before < 40; ++before) {
    const std::string text = std::string(before, 'a') + "\xFF" + std::string(20, 'b');
    EXPECT_EQ(first_invalid_utf8(text), before);
  }
}

TEST(Utf8, ACharacterCutAtTheEndIsInvalid) {
  EXPECT_EQ(first_invalid_utf8("abc\xC3"), 3U);
  EXPECT_EQ(first_invalid_utf8("abc\xE2\x82"), 3U);
  EXPECT_EQ(first_invalid_utf8("abc\xF0\x9F\x98"), 3U);
}

TEST(Excerpt, IsOneLineAndCutsNoCharacter) {
  EXPECT_EQ(excerpt("a\tb\nc"), "a?b?c");
  EXPECT_EQ(excerpt("short"), "short");
  EXPECT_EQ(excerpt("aäää", 4), "aä...");
  EXPECT_EQ(excerpt("caf\xE9 and \xFF"), "caf? and ?");
}

}  // namespace
}  // namespace sw
