#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/experts.hpp"
#include "model/families.hpp"
#include "model/rope_config.hpp"

/// config.json of Llama and its kin.
namespace sw::llama {
namespace {

/// A model_type: what absent keys mean to it, as in the `transformers` library's configuration
/// class of that type.
struct Type {
  std::string_view model_type;
  std::string_view architecture;
  std::int64_t vocabulary = 32000;
  std::int64_t hidden = 4096;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t feed_forward = 11008;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t max_positions = 2048;
  double theta = 10000;
  double epsilon = 1e-6;
  std::int64_t bos = 1;
  std::int64_t eos = 2;
  bool experts = false;
};

constexpr Type kTypes[] = {
    {.model_type = "llama", .architecture = "LlamaForCausalLM"},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .feed_forward = 14336,
     .kv_heads = 8,
     .max_positions = 131072},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocabulary = 151936,
     .feed_forward = 22016,
     .kv_heads = 32,
     .max_positions = 32768,
     .bos = -1,
     .eos = -1},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .feed_forward = 14336,
     .kv_heads = 8,
     .max_positions = 131072,
     .theta = 1e6,
     .epsilon = 1e-5,
     .experts = true},
    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .vocabulary = 151936,
     .hidden = 2048,
     .layers = 24,
     .heads = 16,
     .feed_forward = 5632,
     .kv_heads = 16,
     .max_positions = 32768,
     .bos = -1,
     .eos = -1,
     .experts = true},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .vocabulary = 151936,
     .hidden = 2048,
     .layers = 24,
     .heads = 32,
     .feed_forward = 6144,
     .kv_heads = 4,
     .max_positions = 32768,
     .bos = -1,
     .eos = -1,
     .experts = true},
};

const Type& type_of(const std::string& model_type) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const Type& type) { return type.model_type == model_type; });
  SW_CHECK(found != std::end(kTypes), "{} is no kin of Llama", model_type);
  return *found;
}

bool is_qwen(const ModelConfig& config) { return config.model_type.starts_with("qwen"); }

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
  reader.only("mlp_bias", false);
  if (config.model_type == "qwen2_moe") {
    config.qkv_bias = reader.boolean("qkv_bias", true);
  } else if (config.model_type == "qwen3_moe") {
    config.qkv_bias = reader.boolean("attention_bias", false);
    config.output_bias = config.qkv_bias;
  } else {
    config.qkv_bias = config.model_type == "qwen2";  // always there, without a key
    reader.only("attention_bias", config.qkv_bias);
  }
}

/// One window for all layers, or none. Qwen's window sits behind a switch.
void read_window(ConfigReader& reader, ModelConfig& config) {
  if (config.model_type == "mistral") {
    // An explicit null means no window, an absent key the default.
    config.window = reader.has("sliding_window")       ? reader.integer("sliding_window", 0)
                    : reader.present("sliding_window") ? 0
                                                       : 4096;
  } else if (config.model_type == "mixtral") {
    config.window = reader.integer("sliding_window", 0);
  } else if (is_qwen(config)) {
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
  const Type& type = type_of(config.model_type);
  config.vocabulary = reader.integer("vocab_size", type.vocabulary);
  config.hidden = reader.integer("hidden_size", type.hidden);
  config.layers = reader.integer("num_hidden_layers", type.layers);
  config.heads = reader.integer("num_attention_heads", type.heads);
  // A null is not an absent key here: it says "as many as heads".
  const bool heads_each = type.kv_heads == 0 || reader.present("num_key_value_heads");
  config.kv_heads =
      reader.integer("num_key_value_heads", heads_each ? config.heads : type.kv_heads);
  config.head_dim =
      reader.has("head_dim") ? reader.integer("head_dim", 0) : derived_head_dim(reader, config);
  config.feed_forward = reader.integer("intermediate_size", type.feed_forward);
  config.max_positions = reader.integer("max_position_embeddings", type.max_positions);
  config.norm_epsilon = reader.positive("rms_norm_eps", type.epsilon);
  config.tied = reader.boolean("tie_word_embeddings", false);
  config.initializer_range = reader.positive("initializer_range", 0.02);
  config.attention_dropout = reader.rate("attention_dropout", 0);
  config.bos = type.bos;
  config.eos = type.eos < 0 ? std::vector<std::int64_t>() : std::vector<std::int64_t>{type.eos};
  if (reader.text("hidden_act", "silu") != "silu" && reader.text("hidden_act", "") != "swish") {
    reader.refuse("hidden_act", "is not in this version; it can only be silu");
  }
  read_biases(reader, config);
  read_window(reader, config);
  config.rope = read_rope(reader, config.max_positions, type.theta);
  config.head_norm = config.model_type == "qwen3_moe";
  if (type.experts) {
    experts::read(reader, config);
  }
}

void write(const ModelConfig& config, Json& json) {
  json["architectures"] = Json::array({type_of(config.model_type).architecture});
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
  } else if (is_qwen(config)) {
    json["use_sliding_window"] = false;
  } else {
    json["sliding_window"] = config.window > 0 ? Json(config.window) : Json();
  }
  if (config.model_type == "qwen2_moe") {
    json["qkv_bias"] = config.qkv_bias;
  } else if (config.model_type == "qwen3_moe") {
    json["attention_bias"] = config.qkv_bias;
  }
  if (config.experts > 0) {
    experts::write(config, json);
  }
}

}  // namespace sw::llama
