#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sw {
namespace {

TEST(Hash, OfNothingIsTheValuePublishedForXxh3) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2ULL);
  EXPECT_EQ(to_text(hash128(std::string_view{})), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, DoesNotDependOnHowTheBytesArrive) {
  std::vector<std::byte> bytes(100'003);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * i % 251);
  }
  const std::span<const std::byte> all(bytes);
  for (const std::size_t part : {1UL, 7UL, 240UL, 4096UL, 100'003UL}) {
    Hasher hasher;
    for (std::size_t at = 0; at < all.size(); at += part) {
      hasher.update(all.subspan(at, std::min(part, all.size() - at)));
    }
    EXPECT_EQ(hasher.digest(), hash128(all)) << part << " bytes at a time";
  }
}

TEST(Hash, ChangesWithEveryBit) {
  std::vector<std::byte> bytes(33);
  const Digest digest = hash128(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(hash128(bytes), digest) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace sw
