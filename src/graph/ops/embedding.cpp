#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

/// ids [B,S], w [V,D]; input 1 is the table in both the forward and the gradient.
kernels::Parameters localize(const kernels::Parameters&, const Shapes& starts, const Shapes&) {
  return kernels::VocabularyParameters{starts.at(1).at(0)};
}

}  // namespace

std::vector<Operator> embedding() {
  Operator op;
  op.name = "embedding";
  op.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    SW_CHECK(inputs.size() == 2 && inputs[0].size() == 2 && inputs[1].size() == 2,
             "embedding of {} in {}", to_text(inputs.at(0)), to_text(inputs.at(1)));
    return {{inputs[0][0], inputs[0][1], inputs[1][1]}};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    return std::vector<Signature>{all_replicate(2, 1),
                                  {{shard(0), replicate()}, {shard(0)}, false},
                                  {{shard(1), replicate()}, {shard(1)}, false},
                                  {{replicate(), shard(0)}, {partial()}, false},
                                  {{replicate(), shard(1)}, {shard(2)}, false}};
  };
  op.localize = localize;
  op.flops = flops_per_output(0);
  op.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{
        {"embedding_grad",
         parameters,
         {input_of_forward(0), input_of_forward(1), output_gradient(0)},
         {1}}};
  };
  Operator grad = gradient_operator("embedding_grad", 0);
  grad.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return static_cast<double>(elements(inputs.at(2)));
  };
  grad.localize = localize;
  grad.unread_input = 1;
  return {op, grad};
}

}  // namespace sw::ops
