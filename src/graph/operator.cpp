#include "graph/operator.hpp"

#include <algorithm>

#include "graph/ops/ops.hpp"

namespace sw {
namespace {

std::vector<Operator> make_list() {
  std::vector<Operator> all;
  for (const auto& part : {ops::einsum(), ops::elementwise(), ops::norms(), ops::rope(),
                           ops::attention(), ops::embedding(), ops::loss(), ops::experts()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Placement dual(Placement placement) {
  if (placement.is_shard() || placement.is_routed()) {
    return placement;
  }
  return placement.is_replicate() ? partial() : replicate();
}

bool all_replicate(const Signature& signature) {
  const auto is_r = [](Placement placement) { return placement.is_replicate(); };
  return std::all_of(signature.inputs.begin(), signature.inputs.end(), is_r) &&
         std::all_of(signature.outputs.begin(), signature.outputs.end(), is_r);
}

/// The backward signature of one forward signature; `dualize` false: gradients placed like their
/// values (all-Replicate).
Signature transposed(const Op& op, const Signature& forward, bool dualize) {
  const auto gradient = [&](Placement placement) { return dualize ? dual(placement) : placement; };
  Signature result;
  result.divides = forward.divides;
  result.ring = forward.ring;
  for (const GradientInput& input : op.gradient_inputs) {
    const auto at = static_cast<std::size_t>(input.index);
    switch (input.kind) {
      case GradientInput::Kind::Input:
        result.inputs.push_back(forward.inputs.at(at));
        break;
      case GradientInput::Kind::Output:
        result.inputs.push_back(forward.outputs.at(at));
        break;
      case GradientInput::Kind::OutputGradient:
        result.inputs.push_back(gradient(forward.outputs.at(at)));
        break;
    }
  }
  for (const int output : op.gradient_outputs) {
    result.outputs.push_back(gradient(forward.inputs.at(static_cast<std::size_t>(output))));
  }
  return result;
}

std::vector<Shape> whole_shapes(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<Shape> shapes;
  for (const ValueId value : values) {
    shapes.push_back(graph.value(value).shape);
  }
  return shapes;
}

/// Kernels see a bias over the last dims as one row: x [R, N], b [N].
void flatten_bias(kernels::KernelCall& call) {
  if (call.op != "bias_add" && call.op != "bias_add_grad") {
    return;
  }
  Shape& bias = call.op == "bias_add" ? call.inputs.at(1).shape : call.outputs.at(0).shape;
  const std::int64_t width = elements(bias);
  bias = {width};
  Shape& x = call.inputs.at(0).shape;
  x = {elements(x) / std::max<std::int64_t>(width, 1), width};
  if (call.op == "bias_add") {
    call.outputs.at(0).shape = x;
  }
}

bool reads_partial(const Signature& signature) {
  return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                     [](Placement placement) { return placement.is_partial(); });
}

}  // namespace

const std::vector<Operator>& operators() {
  static const std::vector<Operator> kList = make_list();
  return kList;
}

const Operator& find_operator(std::string_view name) {
  for (const Operator& op : operators()) {
    if (op.name == name) {
      return op;
    }
  }
  throw InternalError(fmt::format("no operator is called '{}'", name));
}

std::vector<Signature> signatures(const Graph& graph, const Op& op, const Signature* chosen) {
  if (op.forward < 0) {
    return op.definition->signatures(op.parameters, whole_shapes(graph, op.inputs),
                                     whole_shapes(graph, op.outputs));
  }
  const Op& forward = graph.op(op.forward);
  const std::vector<Signature> candidates =
      chosen != nullptr ? std::vector<Signature>{*chosen} : signatures(graph, forward, nullptr);
  std::vector<Signature> result;
  const auto take = [&](Signature signature) {
    const bool stopped = op.definition->stops_partial && reads_partial(signature);
    if (!stopped && std::find(result.begin(), result.end(), signature) == result.end()) {
      result.push_back(std::move(signature));
    }
  };
  for (const Signature& candidate : candidates) {
    if (all_replicate(candidate)) {
      take(transposed(op, candidate, false));
    }
    take(transposed(op, candidate, true));
  }
  return result;
}

kernels::KernelCall local_call(const Graph& graph, const Op& op,
                               const std::vector<Shape>& input_shapes,
                               const std::vector<Shape>& input_starts,
                               const std::vector<DType>& input_types,
                               const std::vector<Shape>& output_shapes,
                               const std::vector<DType>& output_types) {
  kernels::KernelCall call;
  call.op = op.definition->name;
  call.parameters = op.parameters;
  if (op.definition->localize) {
    call.parameters =
        op.definition->localize(op.parameters, input_starts, whole_shapes(graph, op.inputs));
  }
  for (std::size_t i = 0; i < input_shapes.size(); ++i) {
    call.inputs.push_back({nullptr, input_types[i], input_shapes[i]});
  }
  for (std::size_t i = 0; i < output_shapes.size(); ++i) {
    call.outputs.push_back({nullptr, output_types[i], output_shapes[i]});
  }
  call.accumulate.assign(output_shapes.size(), false);
  flatten_bias(call);
  return call;
}

}  // namespace sw
