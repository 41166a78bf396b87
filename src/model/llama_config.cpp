#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/rope_config.hpp"

/// config.json of Llama, Mistral and Qwen2. Defaults are those of the `transformers` library's
/// LlamaConfig, MistralConfig and Qwen2Config.
namespace sw::llama {
namespace {

/// What the three types leave out means different things.
struct Defaults {
  std::int64_t vocabulary = 32000;
  std::int64_t feed_forward = 11008;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t max_positions = 2048;
  std::int64_t bos = 1;
  std::vector<std::int64_t> eos = {2};
};

Defaults defaults_of(const std::string& model_type) {
  if (model_type == "mistral") {
    return {.feed_forward = 14336, .kv_heads = 8, .max_positions = 131072};
  }
  if (model_type == "qwen2") {
    return {.vocabulary = 151936,
            .feed_forward = 22016,
            .kv_heads = 32,
            .max_positions = 32768,
            .bos = -1,
            .eos = {}};
  }
  return {};
}

std::int64_t derived_head_dim(ConfigReader& reader, const ModelConfig& config) {
  if (config.hidden % config.heads != 0) {
    throw ConfigError(fmt::format(
        "{}: hidden_size = {} is not a multiple of num_attention_heads = {} and head_dim is not "
        "given; give head_dim, or sizes that divide",
        reader.where(), config.hidden, config.heads));
  }
  return config.hidden / config.heads;
}

void read_biases(ConfigReader& reader, ModelConfig& config) {
  if (config.model_type == "llama") {
    config.qkv_bias = reader.boolean("attention_bias", false);
    config.output_bias = config.qkv_bias;
    config.mlp_bias = reader.boolean("mlp_bias", false);
    reader.only("pretraining_tp", 1);
    return;
  }
  config.qkv_bias = config.model_type == "qwen2";  // always there, without a key
  reader.only("attention_bias", config.qkv_bias);
  reader.only("mlp_bias", false);
}

/// One window for all layers, or none. Qwen2's window sits behind a switch.
void read_window(ConfigReader& reader, ModelConfig& config) {
  if (config.model_type == "mistral") {
    // An explicit null means no window, an absent key the default.
    config.window = reader.has("sliding_window")       ? reader.integer("sliding_window", 0)
                    : reader.present("sliding_window") ? 0
                                                       : 4096;
  } else if (config.model_type == "qwen2") {
    reader.only("use_sliding_window", false);
    reader.ignore({"sliding_window", "max_window_layers"});
  } else {
    reader.only("sliding_window", Json());
  }
  const std::string_view layer_type = config.window > 0 ? "sliding_attention" : "full_attention";
  const Json& types = reader.value("layer_types");
  if (!types.is_null() &&
      !(types.is_array() && std::all_of(types.begin(), types.end(),
                                        [&](const Json& type) { return type == layer_type; }))) {
    reader.refuse("layer_types",
                  fmt::format("is not in this version; every layer is {} here", layer_type));
  }
}

}  // namespace

void read(ConfigReader& reader, ModelConfig& config) {
  const Defaults defaults = defaults_of(config.model_type);
  config.vocabulary = reader.integer("vocab_size", defaults.vocabulary);
  config.hidden = reader.integer("hidden_size", 4096);
  config.layers = reader.integer("num_hidden_layers", 32);
  config.heads = reader.integer("num_attention_heads", 32);
  // A null is not an absent key here: it says "as many as heads".
  const bool heads_each = defaults.kv_heads == 0 || reader.present("num_key_value_heads");
  config.kv_heads =
      reader.integer("num_key_value_heads", heads_each ? config.heads : defaults.kv_heads);
  config.head_dim =
      reader.has("head_dim") ? reader.integer("head_dim", 0) : derived_head_dim(reader, config);
  config.feed_forward = reader.integer("intermediate_size", defaults.feed_forward);
  config.max_positions = reader.integer("max_position_embeddings", defaults.max_positions);
  config.norm_epsilon = reader.positive("rms_norm_eps", 1e-6);
  config.tied = reader.boolean("tie_word_embeddings", false);
  config.initializer_range = reader.positive("initializer_range", 0.02);
  config.attention_dropout = reader.rate("attention_dropout", 0);
  config.bos = defaults.bos;
  config.eos = defaults.eos;
  if (reader.text("hidden_act", "silu") != "silu" && reader.text("hidden_act", "") != "swish") {
    reader.refuse("hidden_act", "is not in this version; it can only be silu");
  }
  read_biases(reader, config);
  read_window(reader, config);
  config.rope = read_rope(reader, config.max_positions);
}

void write(const ModelConfig& config, Json& json) {
  json["architectures"] = Json::array({config.model_type == "mistral" ? "MistralForCausalLM"
                                       : config.model_type == "qwen2" ? "Qwen2ForCausalLM"
                                                                      : "LlamaForCausalLM"});
  json["hidden_size"] = config.hidden;
  json["intermediate_size"] = config.feed_forward;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = config.max_positions;
  json["rms_norm_eps"] = config.norm_epsilon;
  json["attention_dropout"] = config.attention_dropout;
  write_rope(config.rope, json);
  if (config.model_type == "llama") {
    json["attention_bias"] = config.qkv_bias;
    json["mlp_bias"] = config.mlp_bias;
  } else if (config.model_type == "mistral") {
    json["sliding_window"] = config.window > 0 ? Json(config.window) : Json();
  } else {
    json["use_sliding_window"] = false;
  }
}

}  // namespace sw::llama
