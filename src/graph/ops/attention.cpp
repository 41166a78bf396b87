#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

// Inputs: q [B,S,H,K], k, v [B,S2,G,K], positions_q, positions_k, documents_q, documents_k.
// Outputs: o [B,S,H,K], lse [B,S,H].

Shapes shapes(const kernels::Parameters&, const Shapes& inputs) {
  SW_CHECK(inputs.size() == 7 && inputs[0].size() == 4 && inputs[1] == inputs[2] &&
               inputs[0][3] == inputs[1][3] && inputs[0][2] % inputs[1][2] == 0,
           "attention: q is {}, k is {}", to_text(inputs.at(0)), to_text(inputs.at(1)));
  const Shape& q = inputs[0];
  return {q, {q[0], q[1], q[2]}};
}

std::vector<Signature> signatures(const kernels::Parameters&, const Shapes&, const Shapes&) {
  const Placement r = replicate();
  const std::vector<Placement> batch(7, shard(0));
  return {all_replicate(7, 2),
          {batch, {shard(0), shard(0)}, false},
          {{shard(2), shard(2), shard(2), r, r, r, r}, {shard(2), shard(2)}, true},
          {{shard(2), r, r, r, r, r, r}, {shard(2), shard(2)}, true},
          {{shard(1), r, r, shard(1), r, shard(1), r}, {shard(1), shard(1)}, false},
          {{shard(1), shard(1), shard(1), shard(1), r, shard(1), r},
           {shard(1), shard(1)},
           false,
           true}};
}

kernels::Parameters localize(kernels::Parameters parameters, const Shapes& starts, const Shapes&) {
  auto& attention = std::get<kernels::AttentionParameters>(parameters);
  attention.query_head_start = starts.at(0).at(2);
  attention.kv_head_start = starts.at(1).at(2);
  return parameters;
}

/// Two products over the causal half of the scores: 2 · 2 · B·H·S·S2·K / 2.
double forward_flops(const Shapes& inputs) {
  const Shape& q = inputs.at(0);
  return 2.0 * static_cast<double>(elements(q)) * static_cast<double>(inputs.at(1)[1]);
}

}  // namespace

std::vector<Operator> attention() {
  Operator op;
  op.name = "attention";
  op.shapes = shapes;
  op.signatures = signatures;
  op.localize = localize;
  op.expensive = true;
  op.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return forward_flops(inputs);
  };
  op.gradient = [](const kernels::Parameters& parameters) {
    GradientRule rule{"attention_grad", parameters, {}, {0, 1, 2}};
    for (int i = 0; i < 7; ++i) {
      rule.inputs.push_back(input_of_forward(i));
    }
    rule.inputs.push_back(output_of_forward(0));
    rule.inputs.push_back(output_of_forward(1));
    rule.inputs.push_back(output_gradient(0));
    return std::vector<GradientRule>{rule};
  };
  Operator grad;
  grad.name = "attention_grad";
  grad.localize = localize;
  // Scores again, and four products: 2.5 times the forward.
  grad.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return 2.5 * forward_flops(inputs);
  };
  return {op, grad};
}

}  // namespace sw::ops
