#pragma once

#include "base/error.hpp"
#include "graph/operator.hpp"

/// What the operator files share: each gives its operators (a forward and its gradients) to the
/// list in operator.cpp.
namespace sw::ops {

using Shapes = std::vector<Shape>;

std::vector<Operator> einsum();
std::vector<Operator> elementwise();  // add, bias_add, gelu, swiglu, sigmoid, cast, dropout
std::vector<Operator> norms();
std::vector<Operator> rope();
std::vector<Operator> attention();
std::vector<Operator> embedding();
std::vector<Operator> loss();
std::vector<Operator> experts();

/// inputs and outputs all Replicate
[[nodiscard]] inline Signature all_replicate(std::size_t inputs, std::size_t outputs) {
  return {std::vector<Placement>(inputs), std::vector<Placement>(outputs), false};
}
/// Slots alone, each where its expert is.
inline void add_routed(std::vector<Signature>& list, std::size_t inputs, std::size_t outputs) {
  for (int d = 0; d < 2; ++d) {
    list.push_back({std::vector<Placement>(inputs, routed(d)),
                    std::vector<Placement>(outputs, routed(d)), false});
  }
}
[[nodiscard]] inline double total_elements(const Shapes& shapes) {
  double sum = 0;
  for (const Shape& shape : shapes) {
    sum += static_cast<double>(elements(shape));
  }
  return sum;
}
/// A gradient operator whose cost is `per_element` flops for each element of its first output.
[[nodiscard]] inline Operator gradient_operator(std::string name, double per_element) {
  Operator op;
  op.name = std::move(name);
  op.flops = [per_element](const kernels::Parameters&, const Shapes&, const Shapes& outputs) {
    return per_element * static_cast<double>(elements(outputs.at(0)));
  };
  return op;
}
[[nodiscard]] inline auto flops_per_output(double per_element) {
  return [per_element](const kernels::Parameters&, const Shapes&, const Shapes& outputs) {
    return per_element * static_cast<double>(elements(outputs.at(0)));
  };
}
[[nodiscard]] inline GradientInput input_of_forward(int index) {
  return {GradientInput::Kind::Input, index};
}
[[nodiscard]] inline GradientInput output_of_forward(int index) {
  return {GradientInput::Kind::Output, index};
}
[[nodiscard]] inline GradientInput output_gradient(int index) {
  return {GradientInput::Kind::OutputGradient, index};
}

}  // namespace sw::ops
