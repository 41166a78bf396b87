#include "kernels/einsum.hpp"

#include <map>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

std::int64_t offset(std::string_view letters, const Shape& shape,
                    const std::map<char, std::int64_t>& index) {
  std::int64_t result = 0;
  for (std::size_t dim = 0; dim < letters.size(); ++dim) {
    result = result * shape[dim] + index.at(letters[dim]);
  }
  return result;
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

  std::map<char, std::int64_t> size;
  for (std::size_t dim = 0; dim < a_letters.size(); ++dim) size[a_letters[dim]] = a_shape[dim];
  for (std::size_t dim = 0; dim < b_letters.size(); ++dim) size[b_letters[dim]] = b_shape[dim];
  std::int64_t total = 1;
  for (const auto& [letter, count] : size) total *= count;

  const double* a = doubles(call, 0);
  const double* b = doubles(call, 1);
  std::vector<double> c(static_cast<std::size_t>(elements(c_shape)), 0.0);
  std::map<char, std::int64_t> index;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i;
    for (const auto& [letter, count] : size) {
      index[letter] = rest % count;
      rest /= count;
    }
    c[offset(c_letters, c_shape, index)] +=
        a[offset(a_letters, a_shape, index)] * b[offset(b_letters, b_shape, index)];
  }
  write(call, 0, c);
}

}  // namespace

std::vector<Operator> einsum_operators() { return {{"einsum", einsum}}; }

}  // namespace sw::kernels::reference
