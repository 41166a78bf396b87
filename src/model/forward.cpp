#include "model/forward.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "model/parameters.hpp"

namespace sw {

Forward::Forward(const ModelConfig& config, std::int64_t micro_batch, std::int64_t sequence,
                 DType activation)
    : config_(config), activation_(activation) {
  Graph& graph = model_.graph;
  const Shape rows = {micro_batch, sequence};
  model_.tokens = graph.input("tokens", rows, DType::Int32);
  model_.labels = graph.input("labels", rows, DType::Int32);
  model_.positions = graph.input("positions", rows, DType::Int32);
  model_.documents = graph.input("documents", rows, DType::Int32);
  model_.count = graph.input("count", {}, DType::Float32);
  if (config.embedding_dropout > 0 || config.residual_dropout > 0) {
    model_.dropout_key = graph.input("dropout_key", {2}, DType::Int64);
  }
  for (const ParameterSpec& spec : parameter_specs(config)) {
    const ValueId id = graph.parameter(spec.name, spec.shape, activation, spec.letters, spec.layer);
    graph.value(id).decay = spec.decay;
    weights_.emplace(spec.name, id);
  }
}

ValueId Forward::weight(const std::string& parameter) const {
  const auto found = weights_.find(parameter);
  SW_CHECK(found != weights_.end(), "the model has no parameter {}", parameter);
  return found->second;
}

void Forward::set_layer(int layer) {
  layer_ = layer;
  model_.graph.set_layer(layer);
}

std::string Forward::named(std::string_view name) const {
  return layer_ < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer_, name);
}

ValueId Forward::make(std::string_view op, std::vector<ValueId> inputs, std::string_view name,
                      kernels::Parameters parameters) {
  return model_.graph.make(op, std::move(inputs), named(name), activation_, std::move(parameters));
}

std::vector<ValueId> Forward::make_all(std::string_view op, std::vector<ValueId> inputs,
                                       std::string_view name, kernels::Parameters parameters) {
  const OpId made =
      model_.graph.apply(op, std::move(inputs), named(name), activation_, std::move(parameters));
  return model_.graph.op(made).outputs;
}

ValueId Forward::product(std::string_view spec, ValueId x, const std::string& weight_name,
                         const std::string& bias, std::string_view name) {
  const ValueId y =
      model_.graph.einsum(std::string(spec), x, weight(weight_name), named(name), activation_);
  return bias.empty() ? y : make("bias_add", {y, weight(bias)}, fmt::format("{}_bias", name));
}

ValueId Forward::attention(ValueId query, ValueId key, ValueId value) {
  kernels::AttentionParameters parameters;
  parameters.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  parameters.heads_per_kv = config_.heads / config_.kv_heads;
  parameters.window = config_.window;
  return make(
      "attention",
      {query, key, value, model_.positions, model_.positions, model_.documents, model_.documents},
      "attention", parameters);
}

ValueId Forward::dropout(ValueId x, double rate, std::string_view name) {
  if (rate == 0) {
    return x;
  }
  kernels::DropoutParameters parameters;
  parameters.rate = rate;
  parameters.stream = dropouts_++;
  parameters.whole = model_.graph.value(x).shape;
  parameters.start = Shape(parameters.whole.size(), 0);
  return make("dropout", {x, model_.dropout_key}, name, parameters);
}

ValueId Forward::router_bias(const std::string& name) {
  const ValueId bias = model_.graph.input(name, {config_.experts}, DType::Float32);
  model_.graph.value(bias).bias_row = routers_;
  return bias;
}

void Forward::watch_router(ValueId router_logits, ValueId choice, ValueId taken) {
  if (config_.count_load) {
    Value& slots = model_.graph.value(expert_load(taken, "expert_slots_of_window", DType::Int64));
    slots.sum = WindowSum::ExpertLoad;
    slots.sum_row = routers_;
  }
  const auto layers = config_.layers - static_cast<std::int64_t>(config_.dense_layers.size());
  const auto of_layer = [&](double coefficient) {
    return coefficient / static_cast<double>(layers);
  };
  if (config_.balance_loss > 0) {
    const ValueId load = expert_load(choice, "expert_load", DType::Float32);
    add_to_loss("balance_loss", {router_logits, load, model_.labels, model_.count},
                of_layer(config_.balance_loss * static_cast<double>(config_.experts_per_token)),
                WindowSum::BalanceLoss);
  }
  if (config_.z_loss > 0) {
    add_to_loss("z_loss", {router_logits, model_.labels, model_.count}, of_layer(config_.z_loss),
                WindowSum::ZLoss);
  }
  ++routers_;
}

/// Of a micro-batch in float32, as the loss reads it; of a window as whole numbers.
ValueId Forward::expert_load(ValueId choice, std::string_view name, DType dtype) {
  return model_.graph.make("expert_load", {choice, model_.labels}, named(name), dtype,
                           kernels::LoadParameters{config_.experts});
}

/// A term of the loss beside that of tokens.
void Forward::add_to_loss(std::string_view op, std::vector<ValueId> inputs, double coefficient,
                          WindowSum sum) {
  Graph& graph = model_.graph;
  const ValueId term = graph.make(op, std::move(inputs), named(op), DType::Float32,
                                  kernels::TermParameters{coefficient});
  graph.value(term).sum = sum;
  graph.value(term).sum_row = routers_;
}

ValueId Forward::residual(ValueId x) {
  model_.graph.value(x).residual = true;
  return x;
}

ValueId Forward::float32_product(std::string_view spec, ValueId x, const std::string& weight_name,
                                 std::string_view name) {
  return model_.graph.einsum(std::string(spec), x, weight(weight_name), named(name),
                             DType::Float32);
}

}  // namespace sw
