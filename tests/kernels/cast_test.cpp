#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/kernel.hpp"

namespace sw::kernels {
namespace {

/// Ties, their neighbours, zeros, subnormals, infinities and NaNs of every kind of payload.
std::vector<float> special_numbers() {
  std::vector<float> numbers;
  for (const std::uint32_t upper : {0x0000U, 0x0001U, 0x3f80U, 0x3f81U, 0x7f7fU, 0x7f80U, 0x7fc0U,
                                    0x7fffU, 0x8000U, 0xbf81U, 0xff80U, 0xffffU}) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      numbers.push_back(std::bit_cast<float>(upper << 16U | lower));
    }
  }
  return numbers;
}

// The number of elements shifts what stands in whole vectors and what in the rest.
TEST(Cast, RoundsEveryKindOfNumberAsTheBaseDoes) {
  const std::vector<float> all = special_numbers();
  for (std::size_t skip = 0; skip < 16; ++skip) {
    std::vector<float> x(all.begin() + static_cast<std::int64_t>(skip), all.end());
    std::vector<BFloat16> y(x.size());
    const Shape shape{static_cast<std::int64_t>(x.size())};
    const KernelCall call{"cast",
                          {},
                          {{reinterpret_cast<std::byte*>(x.data()), DType::Float32, shape}},
                          {{reinterpret_cast<std::byte*>(y.data()), DType::BFloat16, shape}},
                          {}};
    Team team(1);
    prepare(call, nullptr, 1)(team);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i].bits, to_bfloat16(x[i]).bits)
          << std::hex << std::bit_cast<std::uint32_t>(x[i]);
    }
  }
}

}  // namespace
}  // namespace sw::kernels
