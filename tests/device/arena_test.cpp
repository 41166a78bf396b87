#include "device/arena.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

TEST(Arena, IsWritableToItsLastByteAndHugePageAligned) {
  for (const std::int64_t bytes : {1LL, 4095LL, 4097LL, 5'000'001LL}) {
    Arena arena(bytes);
    ASSERT_EQ(arena.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % (2U << 20U), 0U);
    std::memset(arena.data(), 7, static_cast<std::size_t>(bytes));
    EXPECT_EQ(arena.data()[bytes - 1], std::byte{7});
  }
}

TEST(Arena, OfNoBytesHasNoMemory) {
  const Arena arena(0);
  EXPECT_EQ(arena.data(), nullptr);
  EXPECT_EQ(arena.size(), 0);
}

TEST(Arena, MovesItsMemory) {
  Arena first(100);
  std::byte* data = first.data();
  Arena second = std::move(first);
  EXPECT_EQ(second.data(), data);
  Arena third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 100);
}

TEST(Arena, NamesTheBytesThatDoNotFit) {
  try {
    const Arena arena(std::int64_t{1} << 50U);
    FAIL() << "a pebibyte was given";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("1125899906842624"), std::string::npos)
        << error.what();
  }
}

TEST(HighestTouched, IsZeroForAFilledArena) {
  for (const std::int64_t bytes : {0, 1, 7, 8, 9, 4096, 4099}) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    fill_with_pattern(memory.data(), bytes);
    EXPECT_EQ(highest_touched(memory.data(), bytes), 0) << bytes;
  }
}

TEST(HighestTouched, FindsTheEndOfWhatWasWrittenToTheByte) {
  constexpr std::int64_t kBytes = 1003;
  std::vector<std::byte> memory(kBytes);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t floats = 1; floats * 4 <= kBytes; ++floats) {
    fill_with_pattern(memory.data(), kBytes);
    for (std::int64_t i = 0; i < floats; ++i) {
      const float value = i % 5 == 0 ? 0.0F : normal(random);
      std::memcpy(memory.data() + i * 4, &value, 4);
    }
    ASSERT_EQ(highest_touched(memory.data(), kBytes), floats * 4);
  }
}

}  // namespace
}  // namespace sw
