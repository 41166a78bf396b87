#include "graph/graph.hpp"

#include "base/error.hpp"
#include "graph/operator.hpp"

namespace sw {
namespace {

ValueId append(std::vector<Value>& values, Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

}  // namespace

ValueId Graph::parameter(std::string name, Shape shape, DType dtype, std::string letters,
                         int layer) {
  SW_CHECK(letters.size() == shape.size(), "parameter {}: {} letters for {} dims", name,
           letters.size(), shape.size());
  Value value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  value.kind = ValueKind::Parameter;
  value.letters = std::move(letters);
  value.layer = layer;
  return append(values_, std::move(value));
}

ValueId Graph::input(std::string name, Shape shape, DType dtype) {
  Value value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  value.kind = ValueKind::Input;
  return append(values_, std::move(value));
}

ValueId Graph::activation(std::string name, Shape shape, DType dtype) {
  Value value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  return append(values_, std::move(value));
}

OpId Graph::apply(std::string_view op, std::vector<ValueId> inputs, std::string name, DType dtype,
                  kernels::Parameters parameters) {
  const Operator& definition = find_operator(op);
  SW_CHECK(definition.shapes != nullptr,
           "'{}' is a gradient operator: only differentiate applies it", op);
  std::vector<Shape> shapes;
  for (const ValueId input : inputs) {
    shapes.push_back(value(input).shape);
  }
  const std::vector<Shape> results = definition.shapes(parameters, shapes);
  Op node;
  node.definition = &definition;
  node.parameters = std::move(parameters);
  node.inputs = std::move(inputs);
  node.direction = direction_;
  node.layer = layer_;
  node.name = name;
  for (std::size_t i = 0; i < results.size(); ++i) {
    // Outputs beyond the first are statistics kept for the backward, or a choice.
    const DType type = static_cast<int>(i) == definition.integer_output ? DType::Int32
                       : i == 0                                         ? dtype
                                                                        : DType::Float32;
    node.outputs.push_back(
        activation(i == 0 ? name : fmt::format("{}.{}", name, i), results[i], type));
  }
  ops_.push_back(std::move(node));
  return static_cast<OpId>(ops_.size()) - 1;
}

ValueId Graph::make(std::string_view op, std::vector<ValueId> inputs, std::string name, DType dtype,
                    kernels::Parameters parameters) {
  return this->op(apply(op, std::move(inputs), std::move(name), dtype, std::move(parameters)))
      .outputs.front();
}

ValueId Graph::einsum(std::string spec, ValueId a, ValueId b, std::string name, DType dtype) {
  return make("einsum", {a, b}, std::move(name), dtype, kernels::EinsumParameters{std::move(spec)});
}

OpId Graph::append_gradient(Op op) {
  ops_.push_back(std::move(op));
  return static_cast<OpId>(ops_.size()) - 1;
}

std::vector<ValueId> Graph::parameters() const {
  std::vector<ValueId> result;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind == ValueKind::Parameter) {
      result.push_back(static_cast<ValueId>(i));
    }
  }
  return result;
}

std::vector<const Value*> router_biases(const Graph& graph) {
  std::vector<const Value*> result;
  for (const Value& value : graph.values()) {
    if (value.bias_row >= 0) {
      result.push_back(&value);
    }
  }
  return result;
}

void append_loss(ModelGraph& model) {
  Graph& graph = model.graph;
  graph.set_layer(-1);
  model.row_max = graph.make("row_max", {model.logits}, "loss.max", DType::Float32);
  model.sum_exp = graph.make("sum_exp", {model.logits, model.row_max}, "loss.sum", DType::Float32);
  const ValueId picked = graph.make("pick", {model.logits, model.labels}, "loss.picked",
                                    DType::Float32, kernels::VocabularyParameters{});
  const ValueId token =
      graph.make("token_loss", {model.row_max, model.sum_exp, picked, model.labels}, "loss.token",
                 DType::Float32);
  model.loss = graph.make("loss_sum", {token, model.count}, "loss", DType::Float32);
  graph.value(model.loss).sum = WindowSum::Loss;
}

}  // namespace sw
