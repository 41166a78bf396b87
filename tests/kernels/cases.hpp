#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "tests/kernels/tensors.hpp"

/// The tables over which gradients and kernels are tested: a new operator is one row in each.
namespace sw::kernels::testing {

/// One operator on some sizes.
struct Case {
  std::string name;
  std::string op;
  Parameters parameters = {};
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  /// How many numbers are added into one result; rounding errors grow with it.
  double summands = 1;
  /// Outputs that may accumulate.
  std::vector<std::size_t> accumulating = {};
  /// The input whose memory output 0 may take, or -1.
  int in_place = -1;
  /// The size of terms that may cancel where results are smaller.
  double cancelling = 0;
};
/// All rows, and those of one operator. Built when asked for: each test is a process of its own.
[[nodiscard]] std::vector<Case> cases();
[[nodiscard]] std::vector<Case> cases_of(const std::string& op);

using Values = std::vector<std::vector<double>>;

/// A differentiable function with its gradient: outputs from inputs, and input gradients from
/// inputs, outputs and output gradients.
struct GradientCase {
  std::string name;
  std::vector<Tensor> inputs;
  /// Inputs with a gradient, in the order in which `gradient` gives them.
  std::vector<std::size_t> differentiated;
  std::function<Values(const std::vector<Tensor>& inputs)> forward;
  /// `d_output` is the gradient of output 0.
  std::function<Values(const std::vector<Tensor>& inputs, const Values& outputs,
                       const std::vector<double>& d_output)>
      gradient;
};
[[nodiscard]] std::vector<GradientCase> gradient_cases();
/// Names a failing row for GoogleTest, which would print its bytes.
void PrintTo(const GradientCase& row, std::ostream* out);

/// The rows of the operators of experts.
void add_expert_product_cases(std::vector<Case>& all);
void add_route_cases(std::vector<Case>& all);
void add_balance_cases(std::vector<Case>& all);
void add_slot_cases(std::vector<Case>& all);
[[nodiscard]] std::vector<GradientCase> expert_gradient_cases();

/// Runs one reference on whole tensors; outputs that are not all numbers are given as tensors.
[[nodiscard]] Values run(const std::string& op, const Parameters& parameters,
                         const std::vector<Tensor>& inputs, const std::vector<Shape>& outputs);
[[nodiscard]] Values run_into(const std::string& op, const Parameters& parameters,
                              const std::vector<Tensor>& inputs,
                              const std::vector<Tensor>& outputs);

}  // namespace sw::kernels::testing
