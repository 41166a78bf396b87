#include "base/shape.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sw {

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) {
      throw ConfigError(fmt::format("shape {} has a negative or too large size", to_text(shape)));
    }
  }
  return product;
}

std::string to_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Range split(std::int64_t size, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = size / parts;
  const std::int64_t extra = size % parts;
  const std::int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

}  // namespace sw
