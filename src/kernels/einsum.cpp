#include "kernels/einsum.hpp"

#include <string>

#include "base/error.hpp"

namespace sw::kernels {
namespace {

struct Operand {
  std::string_view letters;
  const Shape& shape;
};

bool contains(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

std::int64_t size_of_letter(const Operand& operand, char letter) {
  return operand.shape.at(operand.letters.find(letter));
}

/// The letters that two operands share, checked: as many elements in both, one run in the same
/// order.
struct Shared {
  std::string letters;
  std::int64_t size = 1;
};

Shared shared(std::string_view spec, const Operand& x, const Operand& y) {
  Shared result;
  for (const char letter : x.letters) {
    if (!contains(y.letters, letter)) continue;
    result.letters += letter;
    result.size *= size_of_letter(x, letter);
    SW_CHECK(size_of_letter(x, letter) == size_of_letter(y, letter),
             "einsum {}: letter {} has size {} and {}", spec, letter, size_of_letter(x, letter),
             size_of_letter(y, letter));
  }
  SW_CHECK(x.letters.find(result.letters) != std::string_view::npos &&
               y.letters.find(result.letters) != std::string_view::npos,
           "einsum {}: the letters {} are not adjacent and in the same order in both places", spec,
           result.letters);
  return result;
}

/// Whether the operand starts with the other pair's letters.
bool transposed(const Operand& operand, const Shared& first, const Shared& second) {
  if (first.letters.empty() || second.letters.empty()) return false;
  return operand.letters.find(first.letters) > operand.letters.find(second.letters);
}

void check_letters(std::string_view spec, const Operand& operand) {
  SW_CHECK(operand.letters.size() == operand.shape.size(),
           "einsum {}: {} names {} dims and the shape is {}", spec, operand.letters,
           operand.letters.size(), to_text(operand.shape));
  for (std::size_t i = 0; i < operand.letters.size(); ++i) {
    SW_CHECK(operand.letters.find(operand.letters[i], i + 1) == std::string_view::npos,
             "einsum {}: {} stands twice in one operand", spec, operand.letters[i]);
  }
}

}  // namespace

MatrixProduct matrix_product(std::string_view spec, const Shape& a, const Shape& b,
                             const Shape& result) {
  const std::size_t comma = spec.find(',');
  const std::size_t arrow = spec.find("->");
  SW_CHECK(comma != std::string_view::npos && arrow != std::string_view::npos && comma < arrow,
           "einsum {} is not of the form a,b->c", spec);
  const Operand operand_a{spec.substr(0, comma), a};
  const Operand operand_b{spec.substr(comma + 1, arrow - comma - 1), b};
  const Operand operand_c{spec.substr(arrow + 2), result};
  for (const Operand* operand : {&operand_a, &operand_b, &operand_c}) check_letters(spec, *operand);
  const Shared m = shared(spec, operand_a, operand_c);
  const Shared n = shared(spec, operand_b, operand_c);
  const Shared k = shared(spec, operand_a, operand_b);
  SW_CHECK(m.letters.size() + k.letters.size() == a.size() &&
               n.letters.size() + k.letters.size() == b.size() &&
               m.letters.size() + n.letters.size() == result.size(),
           "einsum {}: every letter stands in exactly two of the three places", spec);
  return {.m = m.size,
          .n = n.size,
          .k = k.size,
          .a_transposed = transposed(operand_a, m, k),
          .b_transposed = transposed(operand_b, k, n),
          .result_transposed = transposed(operand_c, m, n)};
}

}  // namespace sw::kernels
