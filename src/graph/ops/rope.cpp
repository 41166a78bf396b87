#include "graph/ops/ops.hpp"

namespace sw::ops {

std::vector<Operator> rope() {
  Operator op;
  op.name = "rope";
  op.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    SW_CHECK(inputs.at(0).size() == 4 && inputs[0][3] % 2 == 0,
             "rope needs [B,S,H,K] with even K, not {}", to_text(inputs[0]));
    return {inputs[0]};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    return std::vector<Signature>{all_replicate(2, 1),
                                  {{shard(0), shard(0)}, {shard(0)}, false},
                                  {{shard(1), shard(1)}, {shard(1)}, false},
                                  {{shard(2), replicate()}, {shard(2)}, false},
                                  {{partial(), replicate()}, {partial()}, false}};
  };
  op.flops = flops_per_output(3);
  op.in_place = 0;
  op.gradient = [](const kernels::Parameters& parameters) {
    // x itself is not needed: rotation is linear. It stays out of the gradient's inputs so that it
    // need not be kept.
    return std::vector<GradientRule>{
        {"rope_grad", parameters, {input_of_forward(1), output_gradient(0)}, {0}}};
  };
  Operator grad = gradient_operator("rope_grad", 3);
  grad.in_place = 1;
  return {op, grad};
}

}  // namespace sw::ops
