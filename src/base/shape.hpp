#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sw {

/// Sizes of a tensor's dims, outermost first; [] is a scalar of one element.
using Shape = std::vector<std::int64_t>;

/// Product of the dims; throws ConfigError when it does not fit in 63 bits or a dim is negative.
[[nodiscard]] std::int64_t elements(const Shape& shape);
/// "[2, 3]"
[[nodiscard]] std::string to_text(const Shape& shape);

/// Half-open range of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Part `index` of `size` cut into `parts`: balanced, the first `size % parts` parts get one more.
[[nodiscard]] Range split(std::int64_t size, std::int64_t parts, std::int64_t index);

[[nodiscard]] inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace sw
