#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

// B batch, S sequence, E experts, k slots of a token: one per expert that it chose. logits [B,S,E];
// gate, choice [B,S,k]; values of slots [B,S,k,·]; weights of a layer's experts [E,O,I].

/// All Replicate, and all cut along the batch or the sequence.
std::vector<Signature> cut_tokens(std::size_t inputs, std::size_t outputs) {
  std::vector<Signature> result{all_replicate(inputs, outputs)};
  for (int d = 0; d < 2; ++d) {
    result.push_back({std::vector<Placement>(inputs, shard(d)),
                      std::vector<Placement>(outputs, shard(d)), false});
  }
  return result;
}

/// Never cut along the experts: a token compares all of them.
std::vector<Operator> route() {
  Operator op;
  op.name = "route";
  op.shapes = [](const kernels::Parameters& parameters, const Shapes& inputs) -> Shapes {
    const std::int64_t chosen = std::get<kernels::RouteParameters>(parameters).chosen;
    const Shape& logits = inputs.at(0);
    SW_CHECK(logits.size() == 3 && chosen >= 1 && chosen <= logits[2] &&
                 (inputs.size() == 1 || inputs.at(1) == Shape{logits[2]}),
             "route of {} to {} experts each", to_text(logits), chosen);
    const Shape slots = {logits[0], logits[1], chosen};
    return {slots, slots};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    std::vector<Signature> result = cut_tokens(1, 2);
    for (Signature& signature : result) {
      signature.inputs.resize(inputs.size(), replicate());  // a bias
    }
    return result;
  };
  op.integer_output = 1;
  op.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return 6 * static_cast<double>(elements(inputs.at(0)));
  };
  op.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{
        {"route_grad",
         parameters,
         {input_of_forward(0), output_of_forward(1), output_gradient(0)},
         {0}}};
  };
  return {op, gradient_operator("route_grad", 8)};
}

/// Of the slots that a rank has, so that the result depends on the cut.
Operator drop_slots() {
  Operator op;
  op.name = "drop_slots";
  op.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    return {inputs.at(0)};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    return cut_tokens(1, 1);
  };
  op.integer_output = 0;
  op.flops = flops_per_output(0);
  return op;
}

Operator dispatch() {
  Operator op;
  op.name = "dispatch";
  op.shapes = [](const kernels::Parameters& parameters, const Shapes& inputs) -> Shapes {
    const Shape& x = inputs.at(0);
    SW_CHECK(x.size() == 3, "dispatch of {}", to_text(x));
    return {{x[0], x[1], std::get<kernels::DispatchParameters>(parameters).chosen, x[2]}};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    std::vector<Signature> result = cut_tokens(1, 1);
    result.push_back({{shard(2)}, {shard(3)}, false});
    result.push_back({{partial()}, {partial()}, false});
    return result;
  };
  op.flops = flops_per_output(0);
  op.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{{"combine", parameters, {output_gradient(0)}, {0}}};
  };
  return op;
}

Operator combine() {
  Operator op;
  op.name = "combine";
  op.shapes = [](const kernels::Parameters& parameters, const Shapes& inputs) -> Shapes {
    const std::int64_t chosen = std::get<kernels::DispatchParameters>(parameters).chosen;
    const Shape& y = inputs.at(0);
    SW_CHECK(y.size() == 4 && y[2] == chosen, "combine of {} with {} slots a token", to_text(y),
             chosen);
    return {{y[0], y[1], y[3]}};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    std::vector<Signature> result = cut_tokens(1, 1);
    result.push_back({{shard(3)}, {shard(2)}, false});
    result.push_back({{partial()}, {partial()}, false});
    return result;
  };
  op.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes& outputs) {
    return static_cast<double>(elements(inputs.at(0)) - elements(outputs.at(0)));
  };
  op.gradient = [](const kernels::Parameters& parameters) {
    return std::vector<GradientRule>{{"dispatch", parameters, {output_gradient(0)}, {0}}};
  };
  return op;
}

/// Every slot with an [O,I] matrix: two for each multiply-add.
double product_flops(const Shape& choice, const Shape& weight) {
  return 2.0 * static_cast<double>(elements(choice)) * static_cast<double>(weight.at(1)) *
         static_cast<double>(weight.at(2));
}

/// Linear in x and in w, but the backward reads both, and nothing Partial is kept for it.
std::vector<Signature> product_signatures(const kernels::Parameters&, const Shapes&,
                                          const Shapes&) {
  const Placement r = replicate();
  return {all_replicate(3, 1),
          {{shard(0), r, shard(0)}, {shard(0)}, false},
          {{shard(1), r, shard(1)}, {shard(1)}, false},
          {{r, shard(1), r}, {shard(3)}, false},
          {{shard(3), shard(2), r}, {partial()}, false},
          {{routed(0), shard(0), routed(0)}, {routed(0)}, false},
          {{routed(1), shard(0), routed(1)}, {routed(1)}, false}};
}

std::vector<Operator> expert_product() {
  Operator op;
  op.name = "expert_product";
  op.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    SW_CHECK(inputs.size() == 3, "expert_product of {} inputs", inputs.size());
    const Shape& x = inputs[0];
    const Shape& w = inputs[1];
    SW_CHECK(x.size() == 4 && w.size() == 3 && x[3] == w[2] &&
                 inputs[2] == Shape(x.begin(), x.end() - 1),
             "expert_product of {} and {} by the choice {}", to_text(x), to_text(w),
             to_text(inputs[2]));
    return {{x[0], x[1], x[2], w[1]}};
  };
  op.signatures = product_signatures;
  op.expensive = true;
  op.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return product_flops(inputs.at(2), inputs.at(1));
  };
  op.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{
        {"expert_product_grad_input",
         {},
         {output_gradient(0), input_of_forward(1), input_of_forward(2)},
         {0}},
        {"expert_product_grad_weight",
         {},
         {input_of_forward(0), input_of_forward(2), output_gradient(0)},
         {1}}};
  };
  Operator grad_input;
  grad_input.name = "expert_product_grad_input";
  grad_input.flops = op.flops;
  Operator grad_weight;
  grad_weight.name = "expert_product_grad_weight";
  grad_weight.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes& outputs) {
    return product_flops(inputs.at(1), outputs.at(0));
  };
  return {op, grad_input, grad_weight};
}

/// x[...,F], scale[...] or [...,1].
std::vector<Operator> scale_rows() {
  Operator op;
  op.name = "scale_rows";
  op.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    const Shape& x = inputs.at(0);
    Shape rows(x.begin(), x.end() - 1);
    const bool fits = inputs.at(1) == rows;
    rows.push_back(1);
    SW_CHECK(fits || inputs[1] == rows, "scale_rows of {} by {}", to_text(x), to_text(inputs[1]));
    return {x};
  };
  // Linear in both as well: see product_signatures.
  op.signatures = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    const int last = static_cast<int>(inputs.at(0).size()) - 1;
    std::vector<Signature> result{all_replicate(2, 1)};
    for (int d = 0; d < last; ++d) {
      result.push_back({{shard(d), shard(d)}, {shard(d)}, false});
    }
    result.push_back({{shard(last), replicate()}, {shard(last)}, false});
    if (inputs.at(0).size() == 4) {
      add_routed(result, 2, 1);
    }
    return result;
  };
  op.flops = flops_per_output(1);
  op.in_place = 0;
  op.gradient = [](const kernels::Parameters&) {
    return std::vector<GradientRule>{
        {"scale_rows_grad",
         {},
         {input_of_forward(0), input_of_forward(1), output_gradient(0)},
         {0, 1}}};
  };
  Operator grad = gradient_operator("scale_rows_grad", 3);
  grad.in_place = 2;
  return {op, grad};
}

Operator expert_load() {
  Operator op;
  op.name = "expert_load";
  op.shapes = [](const kernels::Parameters& parameters, const Shapes&) -> Shapes {
    return {{std::get<kernels::LoadParameters>(parameters).experts}};
  };
  op.signatures = [](const kernels::Parameters&, const Shapes&, const Shapes&) {
    return std::vector<Signature>{all_replicate(2, 1),
                                  {{shard(0), shard(0)}, {partial()}, false},
                                  {{shard(1), shard(1)}, {partial()}, false}};
  };
  op.flops = [](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return static_cast<double>(elements(inputs.at(0)));
  };
  return op;
}

/// A term of the loss, `name`_loss, that is a sum over tokens, and its gradient. Inputs 0 and
/// `inputs` - 2 are the logits [B,S,E] and the labels [B,S]; the others, the load [E] of all tokens
/// of the micro-batch among them, are Replicate wherever tokens are cut. The gradient's signatures
/// are its own, as those of loss_grad: nothing flows into it.
std::vector<Operator> router_term(const std::string& name, std::size_t inputs, double flops) {
  const auto signatures = [inputs](bool loss) {
    return [=](const kernels::Parameters&, const Shapes&, const Shapes&) {
      std::vector<Signature> result{all_replicate(inputs, 1)};
      for (int d = 0; d < 2; ++d) {
        std::vector<Placement> cut(inputs, replicate());
        cut[0] = cut[inputs - 2] = shard(d);
        result.push_back({cut, {loss ? partial() : shard(d)}, false});
      }
      return result;
    };
  };
  Operator loss;
  loss.name = name + "_loss";
  loss.shapes = [](const kernels::Parameters&, const Shapes&) -> Shapes { return {Shape{}}; };
  loss.signatures = signatures(true);
  loss.flops = [flops](const kernels::Parameters&, const Shapes& in, const Shapes&) {
    return flops * static_cast<double>(elements(in.at(0)));
  };
  loss.seed = name + "_grad";
  Operator grad;
  grad.name = loss.seed;
  grad.shapes = [inputs](const kernels::Parameters&, const Shapes& in) -> Shapes {
    SW_CHECK(in.size() == inputs && in[0].size() == 3 &&
                 in[inputs - 2] == Shape(in[0].begin(), in[0].end() - 1) &&
                 (inputs == 3 || in[1] == Shape{in[0][2]}),
             "a loss of the router logits {} with {} inputs, of which one is {}", to_text(in.at(0)),
             in.size(), to_text(in.at(1)));
    return {in[0]};
  };
  grad.signatures = signatures(false);
  grad.flops = flops_per_output(flops + 2);
  return {loss, grad};
}

}  // namespace

std::vector<Operator> experts() {
  std::vector<Operator> all = {drop_slots(), dispatch(), combine(), expert_load()};
  for (const auto& part : {route(), expert_product(), scale_rows(), router_term("balance", 4, 8),
                           router_term("z", 3, 5)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace sw::ops
