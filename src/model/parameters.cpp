#include "model/parameters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"

namespace sw {
namespace {

/// The stream of random numbers that belongs to a name.
std::uint64_t stream_of(std::string_view name) {
  return hash64(std::as_bytes(std::span(name.data(), name.size())));
}

/// Elements from `begin` of a tensor whose elements are drawn from a normal distribution.
void draw(const Initialization& initial, std::uint64_t seed, std::uint64_t stream,
          std::int64_t begin, std::span<float> values) {
  for (std::size_t i = 0; i < values.size();) {
    const std::uint64_t index = static_cast<std::uint64_t>(begin) + i;
    const auto pair = normal_pair(seed, stream, index / 2);
    for (std::size_t of_pair = index % 2; of_pair < 2 && i < values.size(); ++of_pair, ++i) {
      values[i] = static_cast<float>(initial.mean + initial.deviation * pair[of_pair]);
    }
  }
}

}  // namespace

void initialize(const ParameterSpec& spec, std::uint64_t seed, Range range,
                std::span<float> values) {
  SW_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= elements(spec.shape),
           "{}: elements {} to {} of {}", spec.name, range.begin, range.end, elements(spec.shape));
  SW_CHECK(static_cast<std::int64_t>(values.size()) == range.size(),
           "{}: {} values for {} elements", spec.name, values.size(), range.size());
  if (spec.initial.deviation == 0) {
    std::ranges::fill(values, static_cast<float>(spec.initial.mean));
  } else {
    draw(spec.initial, seed, stream_of(spec.name), range.begin, values);
  }
}

void initialize(const ParameterSpec& spec, std::uint64_t seed, const std::vector<Range>& box,
                Range of_box, std::span<float> values) {
  SW_CHECK(static_cast<std::int64_t>(values.size()) == of_box.size(),
           "{}: {} values for {} elements", spec.name, values.size(), of_box.size());
  std::int64_t passed = 0;  // elements of the box before this row
  for_each_row(spec.shape, box, [&](Range row) {
    const Range wanted{std::max(of_box.begin, passed), std::min(of_box.end, passed + row.size())};
    if (wanted.begin < wanted.end) {
      initialize(spec, seed,
                 Range{row.begin + wanted.begin - passed, row.begin + wanted.end - passed},
                 values.subspan(static_cast<std::size_t>(wanted.begin - of_box.begin),
                                static_cast<std::size_t>(wanted.size())));
    }
    passed += row.size();
  });
  SW_CHECK(of_box.end <= passed, "{}: elements up to {} of a box of {}", spec.name, of_box.end,
           passed);
}

void for_each_row(const Shape& shape, const std::vector<Range>& box,
                  const std::function<void(Range)>& row) {
  SW_CHECK(box.size() == shape.size(), "a box of {} dims in a tensor of {}", box.size(),
           shape.size());
  // Trailing dims that are taken whole are one run of memory with the dim before them.
  std::int64_t trailing = 1;
  std::size_t dims = shape.size();
  while (dims > 0 && box[dims - 1] == Range{0, shape[dims - 1]}) {
    trailing *= shape[--dims];
  }
  const Range inner = dims == 0 ? Range{0, 1} : box[--dims];
  Shape index;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    if (box[dim].size() <= 0) {
      return;
    }
    index.push_back(box[dim].begin);
  }
  if (inner.size() <= 0 || trailing == 0) {
    return;
  }
  const std::int64_t inner_size = shape.size() == dims ? 1 : shape[dims];
  while (true) {
    std::int64_t start = 0;
    for (std::size_t dim = 0; dim < dims; ++dim) {
      start = start * shape[dim] + index[dim];
    }
    start *= inner_size;
    row({(start + inner.begin) * trailing, (start + inner.end) * trailing});
    std::size_t dim = dims;
    while (dim > 0 && ++index[dim - 1] == box[dim - 1].end) {
      index[dim - 1] = box[dim - 1].begin;
      --dim;
    }
    if (dim == 0) {
      return;
    }
  }
}

}  // namespace sw
