#include "model/experts.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sw::experts {
namespace {

/// What the tensors of a layer are called.
struct Names {
  std::string block;
  const char* gate;
  const char* up;
  const char* down;

  [[nodiscard]] std::string router() const { return block + "gate.weight"; }
  /// As in DeepSeek-V3.
  [[nodiscard]] std::string router_bias() const { return block + "gate.e_score_correction_bias"; }
  /// Of all experts, or of one.
  [[nodiscard]] std::string expert(const char* weight) const {
    return fmt::format("{}experts.{}.weight", block, weight);
  }
  [[nodiscard]] std::string expert(const char* weight, std::int64_t number) const {
    return fmt::format("{}experts.{}.{}.weight", block, number, weight);
  }
};

Names names_of(const ModelConfig& config, const std::string& layer_prefix) {
  if (config.model_type == "mixtral") {
    return {layer_prefix + "block_sparse_moe.", "w1", "w3", "w2"};
  }
  return {layer_prefix + "mlp.", "gate_proj", "up_proj", "down_proj"};
}

/// E matrices [out, in], each a tensor of its own in the folder.
void add_weights(Specs& specs, const ModelConfig& c, const Names& names, const char* weight,
                 std::int64_t out, std::int64_t in, const std::string& letters) {
  const Shape shape = {c.experts, out, in};
  specs.matrix(names.expert(weight), shape, letters, shape);
  std::vector<std::string> tensors;
  for (std::int64_t number = 0; number < c.experts; ++number) {
    tensors.push_back(names.expert(weight, number));
  }
  specs.split_experts(tensors);
}

}  // namespace

bool in_layer(const ModelConfig& config, int layer) {
  return config.experts > 0 && std::find(config.dense_layers.begin(), config.dense_layers.end(),
                                         layer) == config.dense_layers.end();
}

void add(Specs& specs, const ModelConfig& config, const std::string& layer_prefix) {
  const Names names = names_of(config, layer_prefix);
  const std::int64_t d = config.hidden;
  const std::int64_t f = config.expert_feed_forward;
  const Shape router = {config.experts, d};
  specs.matrix(names.router(), router, "rd", router);
  add_weights(specs, config, names, names.gate, f, d, "efd");
  add_weights(specs, config, names, names.up, f, d, "efd");
  add_weights(specs, config, names, names.down, d, f, "edf");
}

ValueId forward(Forward& f, ValueId x, const std::string& layer_prefix) {
  const ModelConfig& c = f.config();
  const Names names = names_of(c, layer_prefix);
  const kernels::DispatchParameters chosen{c.experts_per_token};
  // Before the router, so that where the sequence is gathered, one gathered copy serves both.
  const ValueId slots = f.make("dispatch", {x}, "expert_slots", chosen);
  const ValueId logits = f.float32_product("bsd,ed->bse", x, names.router(), "router_logits");
  std::vector<ValueId> scores = {logits};
  if (c.balance_bias > 0) {
    scores.push_back(f.router_bias(names.router_bias()));
  }
  const std::vector<ValueId> routed = f.make_all(
      "route", scores, "route", kernels::RouteParameters{c.experts_per_token, c.normalize_gates});
  ValueId choice = routed.at(1);
  if (c.expert_capacity > 0) {
    choice = f.make("drop_slots", {choice}, "kept_slots",
                    kernels::CapacityParameters{c.experts, c.expert_capacity});
  }
  f.watch_router(logits, routed.at(1), choice);
  const auto product = [&](ValueId rows, const char* weight, std::string_view as) {
    return f.make("expert_product", {rows, f.weight(names.expert(weight)), choice}, as);
  };
  const ValueId gate = product(slots, names.gate, "expert_gate");
  const ValueId up = product(slots, names.up, "expert_up");
  const ValueId inner = f.make("swiglu", {gate, up}, "expert_swiglu");
  // Ahead of the last product: what tp sums of the routing's gradient is then one number a slot.
  const ValueId weighted = f.make("scale_rows", {inner, routed.at(0)}, "expert_weighted");
  const ValueId output = product(weighted, names.down, "expert_output");
  return f.make("combine", {output}, "experts_output", chosen);
}

}  // namespace sw::experts
