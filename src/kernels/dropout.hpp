#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "kernels/kernel.hpp"

namespace sw::kernels {

/// The random words of a dropout: word i % 4 of block i / 4 belongs to element i of the whole
/// tensor.
class DropoutMask {
 public:
  DropoutMask(const DropoutParameters& parameters, std::int64_t seed, std::int64_t step)
      : key_(mix(static_cast<std::uint64_t>(seed) + mix(static_cast<std::uint64_t>(step)))),
        stream_(static_cast<std::uint64_t>(parameters.stream)),
        dropped_below_(static_cast<std::uint64_t>(parameters.rate * 0x1.0p32)) {}

  /// A block's four words, for a caller that walks along elements.
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::int64_t index) const {
    return philox(key_, stream_, static_cast<std::uint64_t>(index));
  }
  [[nodiscard]] bool keeps_word(std::uint32_t word) const { return word >= dropped_below_; }
  [[nodiscard]] bool keeps(std::int64_t element) const {
    return keeps_word(block(element / 4)[static_cast<std::size_t>(element % 4)]);
  }

 private:
  std::uint64_t key_;
  std::uint64_t stream_;
  std::uint64_t dropped_below_;
};

/// Index in the whole tensor of the first element of local row `row`; a row runs along the last
/// dim of `local`.
[[nodiscard]] std::int64_t whole_index_of_row(const DropoutParameters& parameters,
                                              const Shape& local, std::int64_t row);

}  // namespace sw::kernels
