#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

Shapes shapes(const kernels::Parameters&, const Shapes& inputs) {
  const Shape& x = inputs.at(0);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    SW_CHECK(inputs[i] == Shape{x.back()}, "norm of {}: weight has shape {}", to_text(x),
             to_text(inputs[i]));
  }
  return {x};
}

/// Any dim but the model dim.
std::vector<Signature> signatures(const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
  std::vector<Signature> result{all_replicate(inputs.size(), 1)};
  for (int d = 0; d + 1 < static_cast<int>(inputs[0].size()); ++d) {
    std::vector<Placement> placements(inputs.size());
    placements[0] = shard(d);
    result.push_back({placements, {shard(d)}, false});
  }
  return result;
}

Operator norm(const std::string& name, int inputs) {
  Operator op;
  op.name = name;
  op.shapes = shapes;
  op.signatures = signatures;
  op.flops = flops_per_output(5);
  op.gradient = [name, inputs](const kernels::Parameters& parameters) {
    GradientRule rule{name + "_grad", parameters, {}, {}};
    for (int i = 0; i < inputs; ++i) {
      rule.inputs.push_back(input_of_forward(i));
      rule.outputs.push_back(i);
    }
    rule.inputs.push_back(output_gradient(0));
    return std::vector<GradientRule>{rule};
  };
  return op;
}

Operator norm_grad(const std::string& name) {
  Operator op = gradient_operator(name, 12);
  op.stops_partial = true;
  return op;
}

}  // namespace

std::vector<Operator> norms() {
  return {norm("rms_norm", 2), norm_grad("rms_norm_grad"), norm("layer_norm", 3),
          norm_grad("layer_norm_grad")};
}

}  // namespace sw::ops
