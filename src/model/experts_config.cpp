#include <algorithm>

#include "base/error.hpp"
#include "model/experts.hpp"

namespace sw::experts {
namespace {

/// What the three types leave out means different things.
struct ExpertDefaults {
  std::int64_t experts;
  std::int64_t experts_per_token;
  std::int64_t feed_forward;
  std::int64_t shared_feed_forward;
};

ExpertDefaults defaults_of(const std::string& model_type) {
  if (model_type == "qwen2_moe") {
    return {60, 4, 1408, 5632};
  }
  return {128, 8, 768, 0};
}

void read_mixtral(ConfigReader& reader, ModelConfig& config) {
  // The library knows this number under two names.
  config.experts = reader.integer("num_local_experts", reader.integer("num_experts", 8));
  if (reader.has("num_experts") && reader.integer("num_experts", 8) != config.experts) {
    reader.refuse("num_experts",
                  fmt::format("contradicts num_local_experts = {}; keep one", config.experts));
  }
  config.experts_per_token = reader.integer("num_experts_per_tok", 2);
  config.expert_feed_forward = config.feed_forward;
  config.normalize_gates = true;
  reader.only("router_jitter_noise", 0);
}

/// Layers without experts: those that are listed, and all whose number, from 1, is no multiple of
/// the step.
std::vector<std::int64_t> read_dense_layers(ConfigReader& reader, std::int64_t layers) {
  const std::int64_t step = reader.integer("decoder_sparse_step", 1);
  const Json& listed = reader.value("mlp_only_layers");
  const auto is_layer = [&](const Json& layer) {
    return layer.is_number_integer() && layer >= 0 && layer < layers;
  };
  if (!listed.is_null() &&
      !(listed.is_array() && std::all_of(listed.begin(), listed.end(), is_layer))) {
    reader.refuse("mlp_only_layers", fmt::format("must be a list of layers, 0 to {}", layers - 1));
  }
  std::vector<std::int64_t> dense;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool in_list = std::find(listed.begin(), listed.end(), layer) != listed.end();
    if (in_list || (layer + 1) % step != 0) {
      dense.push_back(layer);
    }
  }
  return dense;
}

void read_qwen(ConfigReader& reader, ModelConfig& config) {
  const ExpertDefaults defaults = defaults_of(config.model_type);
  config.experts = reader.integer("num_experts", defaults.experts);
  config.experts_per_token = reader.integer("num_experts_per_tok", defaults.experts_per_token);
  config.expert_feed_forward = reader.integer("moe_intermediate_size", defaults.feed_forward);
  config.normalize_gates = reader.boolean("norm_topk_prob", false);
  config.dense_layers = read_dense_layers(reader, config.layers);
  if (defaults.shared_feed_forward > 0) {
    config.shared_feed_forward =
        reader.integer("shared_expert_intermediate_size", defaults.shared_feed_forward);
  }
}

}  // namespace

void read(ConfigReader& reader, ModelConfig& config) {
  if (config.model_type == "mixtral") {
    read_mixtral(reader, config);
  } else {
    read_qwen(reader, config);
  }
  if (config.experts_per_token > config.experts) {
    throw ConfigError(
        fmt::format("{}: num_experts_per_tok = {} is more than the {} experts; use at most {}",
                    reader.where(), config.experts_per_token, config.experts, config.experts));
  }
  // True would add the balance loss to the loss that is trained.
  reader.only("output_router_logits", false);
  reader.ignore({"router_aux_loss_coef"});
}

void write(const ModelConfig& config, Json& json) {
  json["num_experts_per_tok"] = config.experts_per_token;
  if (config.model_type == "mixtral") {
    json["num_local_experts"] = config.experts;
    return;
  }
  json["num_experts"] = config.experts;
  json["moe_intermediate_size"] = config.expert_feed_forward;
  json["norm_topk_prob"] = config.normalize_gates;
  json["mlp_only_layers"] = config.dense_layers;
  json["decoder_sparse_step"] = 1;
  if (config.shared_feed_forward > 0) {
    json["shared_expert_intermediate_size"] = config.shared_feed_forward;
  }
}

}  // namespace sw::experts
