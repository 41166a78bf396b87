#include "tests/checkpoint/layouts.hpp"

#include <cstring>

namespace sw::testing {
namespace {

std::int64_t below(std::mt19937_64& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

void add_slices(const LogicalTensor& tensor, const std::vector<Range>& box, RankPieces& ranks,
                std::mt19937_64& random) {
  const std::int64_t size = box_elements({box, {}});
  const std::int64_t block = 1 + below(random, 5);
  const std::int64_t parts = 1 + below(random, 4);
  const std::int64_t slice = round_up((size + parts - 1) / parts, block);
  for (std::int64_t begin = 0; begin < size; begin += slice) {
    const PieceRange range{box, {begin, std::min(begin + slice, size)}};
    auto& owner = ranks[static_cast<std::size_t>(below(random, std::ssize(ranks)))];
    owner.push_back({tensor.about, range, values_of(tensor, range)});
  }
}

void add_boxes(const LogicalTensor& tensor, std::vector<Range> box, std::size_t dim,
               RankPieces& ranks, std::mt19937_64& random) {
  if (dim == tensor.about.shape.size()) {
    add_slices(tensor, box, ranks, random);
    return;
  }
  const std::int64_t size = tensor.about.shape[dim];
  const std::int64_t parts = below(random, 2) == 0 ? 1 : 1 + below(random, 3);
  for (std::int64_t part = 0; part < parts; ++part) {
    box.push_back(split(size, parts, part));
    add_boxes(tensor, box, dim + 1, ranks, random);
    box.pop_back();
  }
}

}  // namespace

std::vector<std::int64_t> element_indices(const Shape& whole, const PieceRange& range) {
  std::vector<std::int64_t> indices;
  const std::int64_t total = elements(whole);
  std::int64_t inside_box = 0;
  for (std::int64_t flat = 0; flat < total; ++flat) {
    bool inside = true;
    std::int64_t rest = flat;
    for (std::size_t dim = whole.size(); dim > 0; --dim) {
      const std::int64_t index = rest % whole[dim - 1];
      rest /= whole[dim - 1];
      inside = inside && range.box[dim - 1].begin <= index && index < range.box[dim - 1].end;
    }
    if (inside) {
      if (range.elements.begin <= inside_box && inside_box < range.elements.end) {
        indices.push_back(flat);
      }
      ++inside_box;
    }
  }
  return indices;
}

std::vector<std::byte> values_of(const LogicalTensor& tensor, const PieceRange& range) {
  const auto size = static_cast<std::size_t>(size_of(tensor.about.dtype));
  std::vector<std::byte> values;
  for (const std::int64_t index : element_indices(tensor.about.shape, range)) {
    const auto* element = tensor.values.data() + static_cast<std::size_t>(index) * size;
    values.insert(values.end(), element, element + size);
  }
  return values;
}

std::vector<LogicalTensor> random_tensors(std::mt19937_64& random) {
  const std::vector<Shape> shapes{{}, {1}, {7}, {13, 5}, {6, 4, 3}, {0, 3}, {2, 1, 5, 3}};
  std::vector<LogicalTensor> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const auto* state : {"weight", "momentum", "variance"}) {
      const DType dtype =
          std::string_view(state) == "weight" && i % 2 == 0 ? DType::BFloat16 : DType::Float32;
      LogicalTensor tensor{{"layers." + std::to_string(i), state, dtype, shapes[i]}, {}};
      tensor.values.resize(static_cast<std::size_t>(elements(shapes[i]) * size_of(dtype)));
      for (std::byte& value : tensor.values) {
        value = static_cast<std::byte>(random());
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

RankPieces random_layout(const std::vector<LogicalTensor>& tensors, int ranks,
                         std::mt19937_64& random) {
  RankPieces pieces(static_cast<std::size_t>(ranks));
  for (const LogicalTensor& tensor : tensors) {
    add_boxes(tensor, {}, 0, pieces, random);
    if (elements(tensor.about.shape) == 0) {
      // Its boxes are empty and gave no piece; one rank still says that the tensor exists.
      pieces[0].push_back({tensor.about, whole_range(tensor.about.shape), {}});
    }
  }
  return pieces;
}

std::vector<Piece> views(const std::vector<OwnedPiece>& pieces) {
  std::vector<Piece> result;
  for (const OwnedPiece& piece : pieces) {
    result.push_back({piece.about.tensor, piece.about.state, piece.about.dtype, piece.about.shape,
                      piece.range, piece.values.data()});
  }
  return result;
}

}  // namespace sw::testing
