#include <set>

#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

struct Letters {
  std::string a, b, result;
};

Letters letters_of(const kernels::Parameters& parameters) {
  const std::string& spec = std::get<kernels::EinsumParameters>(parameters).spec;
  const auto comma = spec.find(',');
  const auto arrow = spec.find("->");
  SW_CHECK(comma != std::string::npos && arrow != std::string::npos, "einsum '{}' is not 'a,b->c'",
           spec);
  return {spec.substr(0, comma), spec.substr(comma + 1, arrow - comma - 1), spec.substr(arrow + 2)};
}

std::int64_t size_of_letter(const Letters& letters, const Shapes& inputs, char letter) {
  const auto in_a = letters.a.find(letter);
  return in_a != std::string::npos ? inputs[0][in_a] : inputs[1][letters.b.find(letter)];
}

Shapes shapes(const kernels::Parameters& parameters, const Shapes& inputs) {
  const Letters letters = letters_of(parameters);
  SW_CHECK(inputs.size() == 2 && inputs[0].size() == letters.a.size() &&
               inputs[1].size() == letters.b.size(),
           "einsum {},{}: inputs have {} dims", letters.a, letters.b, inputs.size());
  for (std::size_t i = 0; i < letters.b.size(); ++i) {
    SW_CHECK(size_of_letter(letters, inputs, letters.b[i]) == inputs[1][i],
             "einsum letter '{}' has sizes {} and {}", letters.b[i],
             size_of_letter(letters, inputs, letters.b[i]), inputs[1][i]);
  }
  Shape result;
  for (const char letter : letters.result) {
    result.push_back(size_of_letter(letters, inputs, letter));
  }
  return {result};
}

Placement placed(const std::string& letters, char letter, Placement otherwise) {
  const auto at = letters.find(letter);
  return at == std::string::npos ? otherwise : shard(static_cast<int>(at));
}

/// A letter split in every operand that has it gives a split result, or a Partial one if the letter
/// is summed; a product is linear in each operand.
std::vector<Signature> signatures(const kernels::Parameters& parameters, const Shapes&,
                                  const Shapes&) {
  const Letters letters = letters_of(parameters);
  std::vector<Signature> result{all_replicate(2, 1)};
  const std::string both = letters.a + letters.b;
  for (const char letter : std::set<char>(both.begin(), both.end())) {
    result.push_back(
        {{placed(letters.a, letter, replicate()), placed(letters.b, letter, replicate())},
         {placed(letters.result, letter, partial())},
         false});
  }
  result.push_back({{partial(), replicate()}, {partial()}, false});
  result.push_back({{replicate(), partial()}, {partial()}, false});
  return result;
}

std::vector<GradientRule> gradient(const kernels::Parameters& parameters) {
  const Letters letters = letters_of(parameters);
  const auto rule = [&](const std::string& other, const std::string& wanted, int other_index,
                        int wanted_index) {
    return GradientRule{"einsum",
                        kernels::EinsumParameters{letters.result + "," + other + "->" + wanted},
                        {output_gradient(0), input_of_forward(other_index)},
                        {wanted_index}};
  };
  return {rule(letters.b, letters.a, 1, 0), rule(letters.a, letters.b, 0, 1)};
}

double flops(const kernels::Parameters& parameters, const Shapes& inputs, const Shapes&) {
  const Letters letters = letters_of(parameters);
  const std::string both = letters.a + letters.b;
  double product = 2;
  for (const char letter : std::set<char>(both.begin(), both.end())) {
    product *= static_cast<double>(size_of_letter(letters, inputs, letter));
  }
  return product;
}

}  // namespace

std::vector<Operator> einsum() {
  Operator op;
  op.name = "einsum";
  op.shapes = shapes;
  op.signatures = signatures;
  op.gradient = gradient;
  op.flops = flops;
  op.expensive = true;
  return {op};
}

}  // namespace sw::ops
