#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

Shapes like_first(const kernels::Parameters&, const Shapes& inputs) { return {inputs.at(0)}; }

/// Any dim cut in all operands alike, or slots routed; `linear` adds Partial -> Partial.
auto cut_anywhere(bool linear) {
  return [linear](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    const std::size_t n = inputs.size();
    std::vector<Signature> result{all_replicate(n, 1)};
    for (int d = 0; d < static_cast<int>(inputs[0].size()); ++d) {
      result.push_back({std::vector<Placement>(n, shard(d)), {shard(d)}, false});
    }
    if (inputs[0].size() == 4) {
      add_routed(result, n, 1);
    }
    if (linear) {
      result.push_back({std::vector<Placement>(n, partial()), {partial()}, false});
    }
    return result;
  };
}

/// b's dims are x's last dims. Never on Partial: the bias of a row-split product is added after the
/// reduction.
std::vector<Signature> bias_signatures(const kernels::Parameters&, const Shapes& inputs,
                                       const Shapes&) {
  std::vector<Signature> result{all_replicate(2, 1)};
  const int dims = static_cast<int>(inputs[0].size());
  const int leading = dims - static_cast<int>(inputs[1].size());
  for (int d = 0; d < dims; ++d) {
    result.push_back(
        {{shard(d), d < leading ? replicate() : shard(d - leading)}, {shard(d)}, false});
  }
  return result;
}

/// The key is Replicate.
std::vector<Signature> dropout_signatures(const kernels::Parameters&, const Shapes& inputs,
                                          const Shapes&) {
  std::vector<Signature> result{all_replicate(2, 1)};
  for (int d = 0; d < static_cast<int>(inputs[0].size()); ++d) {
    result.push_back({{shard(d), replicate()}, {shard(d)}, false});
  }
  return result;
}

kernels::Parameters localize_dropout(kernels::Parameters parameters, const Shapes& starts,
                                     const Shapes& whole) {
  auto& dropout = std::get<kernels::DropoutParameters>(parameters);
  dropout.start = starts.at(0);
  dropout.whole = whole.at(0);
  return parameters;
}

Operator elementwise_operator(std::string name, double flops_per_element, bool linear) {
  Operator op;
  op.name = std::move(name);
  op.shapes = like_first;
  op.signatures = cut_anywhere(linear);
  op.flops = flops_per_output(flops_per_element);
  op.in_place = 0;
  return op;
}

}  // namespace

std::vector<Operator> elementwise() {
  Operator add = elementwise_operator("add", 1, true);
  add.passes_gradient_to_all = true;
  add.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    for (const Shape& shape : inputs) {
      SW_CHECK(shape == inputs.at(0), "add: shapes {} and {} differ", to_text(shape),
               to_text(inputs.at(0)));
    }
    return {inputs.at(0)};
  };
  add.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes& outputs) {
    return static_cast<double>(inputs.size() - 1) * static_cast<double>(elements(outputs.at(0)));
  };

  Operator bias_add = elementwise_operator("bias_add", 1, false);
  bias_add.signatures = bias_signatures;
  bias_add.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    const Shape& x = inputs.at(0);
    const Shape& b = inputs.at(1);
    SW_CHECK(b.size() <= x.size() && std::equal(b.rbegin(), b.rend(), x.rbegin()),
             "bias_add: {} does not end with {}", to_text(x), to_text(b));
    return {x};
  };
  bias_add.passes_gradient_to = {0};
  bias_add.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{{"bias_add_grad", {}, {output_gradient(0)}, {1}}};
  };
  Operator bias_add_grad = gradient_operator("bias_add_grad", 0);
  bias_add_grad.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return static_cast<double>(elements(inputs.at(0)));
  };

  Operator gelu = elementwise_operator("gelu", 12, false);
  gelu.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{
        {"gelu_grad", parameters, {input_of_forward(0), output_gradient(0)}, {0}}};
  };
  Operator gelu_grad = gradient_operator("gelu_grad", 20);
  gelu_grad.in_place = 1;

  Operator swiglu = elementwise_operator("swiglu", 6, false);
  swiglu.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{
        {"swiglu_grad",
         {},
         {input_of_forward(0), input_of_forward(1), output_gradient(0)},
         {0, 1}}};
  };

  Operator sigmoid = elementwise_operator("sigmoid", 4, false);
  sigmoid.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{
        {"sigmoid_grad", {}, {input_of_forward(0), output_gradient(0)}, {0}}};
  };
  Operator sigmoid_grad = gradient_operator("sigmoid_grad", 7);
  sigmoid_grad.in_place = 1;

  Operator cast = elementwise_operator("cast", 0, true);
  cast.in_place = -1;
  cast.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{{"cast", {}, {output_gradient(0)}, {0}}};
  };

  Operator dropout = elementwise_operator("dropout", 2, false);
  dropout.signatures = dropout_signatures;
  dropout.localize = localize_dropout;
  dropout.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{
        {"dropout_grad", parameters, {output_gradient(0), input_of_forward(1)}, {0}}};
  };
  Operator dropout_grad = gradient_operator("dropout_grad", 2);
  dropout_grad.localize = localize_dropout;
  dropout_grad.in_place = 0;

  return {add,
          bias_add,
          bias_add_grad,
          gelu,
          gelu_grad,
          swiglu,
          gradient_operator("swiglu_grad", 14),
          sigmoid,
          sigmoid_grad,
          cast,
          dropout,
          dropout_grad};
}

}  // namespace sw::ops
