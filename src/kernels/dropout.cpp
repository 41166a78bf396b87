#include "kernels/dropout.hpp"

#include "base/error.hpp"

namespace sw::kernels {

std::int64_t whole_index_of_row(const DropoutParameters& parameters, const Shape& local,
                                std::int64_t row) {
  SW_CHECK(parameters.whole.size() == local.size() && parameters.start.size() == local.size(),
           "dropout of a {} that is part of a {} from {}", to_text(local),
           to_text(parameters.whole), to_text(parameters.start));
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t dim = local.size(); dim-- > 0;) {
    std::int64_t position = parameters.start[dim];
    if (dim + 1 < local.size()) {
      position += row % local[dim];
      row /= local[dim];
    }
    index += position * stride;
    stride *= parameters.whole[dim];
  }
  return index;
}

}  // namespace sw::kernels
