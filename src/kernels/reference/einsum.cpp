#include "kernels/einsum.hpp"

#include <map>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

/// A letter with its size and its stride in each place (0 where it does not stand).
struct Letter {
  std::int64_t size = 1;
  std::int64_t stride[3] = {0, 0, 0};
};

void add_place(std::map<char, Letter>& letters, int place, std::string_view text,
               const Shape& shape) {
  std::int64_t stride = 1;
  for (std::size_t dim = text.size(); dim-- > 0;) {
    letters[text[dim]].size = shape[dim];
    letters[text[dim]].stride[place] = stride;
    stride *= shape[dim];
  }
}

/// Walks over every value of every letter, whatever stands where: independent of the way in which
/// the kernels see one matrix product in it.
void einsum(const KernelCall& call) {
  const std::string& spec = std::get<EinsumParameters>(call.parameters).spec;
  const Shape& a_shape = shape_of(call, 0);
  const Shape& b_shape = shape_of(call, 1);
  const Shape& c_shape = call.outputs.at(0).shape;
  (void)matrix_product(spec, a_shape, b_shape, c_shape);  // checks the spec
  const std::string a_letters = spec.substr(0, spec.find(','));
  const std::string c_letters = spec.substr(spec.find("->") + 2);
  const std::string b_letters =
      spec.substr(a_letters.size() + 1, spec.find("->") - a_letters.size() - 1);

  std::map<char, Letter> letters;
  add_place(letters, 0, a_letters, a_shape);
  add_place(letters, 1, b_letters, b_shape);
  add_place(letters, 2, c_letters, c_shape);
  std::int64_t total = 1;
  for (const auto& [name, letter] : letters) total *= letter.size;

  const double* a = doubles(call, 0);
  const double* b = doubles(call, 1);
  std::vector<double> c(static_cast<std::size_t>(elements(c_shape)), 0.0);
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t offset[3] = {0, 0, 0};
    std::int64_t rest = i;
    for (const auto& [name, letter] : letters) {
      for (int place = 0; place < 3; ++place) {
        offset[place] += rest % letter.size * letter.stride[place];
      }
      rest /= letter.size;
    }
    c[offset[2]] += a[offset[0]] * b[offset[1]];
  }
  write(call, 0, c);
}

}  // namespace

std::vector<Operator> einsum_operators() { return {{"einsum", einsum}}; }

}  // namespace sw::kernels::reference
