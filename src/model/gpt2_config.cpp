#include "base/error.hpp"
#include "model/families.hpp"

/// config.json of GPT-2. Defaults are those of the `transformers` library's GPT2Config.
namespace sw::gpt2 {
namespace {

/// GPT2Config knows four sizes under a second, common name.
std::int64_t size_of_key(ConfigReader& reader, std::string_view key, std::string_view other,
                         std::int64_t fallback) {
  const std::int64_t size = reader.integer(key, reader.integer(other, fallback));
  if (reader.has(key) && reader.has(other) && reader.integer(other, 0) != size) {
    reader.refuse(other, fmt::format("contradicts {} = {}; keep one", key, size));
  }
  return size;
}

void read_activation(ConfigReader& reader, ModelConfig& config) {
  const std::string name = reader.text("activation_function", "gelu_new");
  config.gelu_tanh = name != "gelu";
  if (name != "gelu" && name != "gelu_new" && name != "gelu_pytorch_tanh") {
    reader.refuse("activation_function",
                  "is not in this version; those that are: gelu_new, gelu_pytorch_tanh, gelu");
  }
}

}  // namespace

void read(ConfigReader& reader, ModelConfig& config) {
  config.vocabulary = reader.integer("vocab_size", 50257);
  config.hidden = size_of_key(reader, "n_embd", "hidden_size", 768);
  config.layers = size_of_key(reader, "n_layer", "num_hidden_layers", 12);
  config.heads = size_of_key(reader, "n_head", "num_attention_heads", 12);
  config.max_positions = size_of_key(reader, "n_positions", "max_position_embeddings", 1024);
  config.feed_forward = reader.integer("n_inner", 4 * config.hidden);
  config.kv_heads = config.heads;
  if (config.hidden % config.heads != 0) {
    throw ConfigError(fmt::format(
        "{}: n_embd = {} is not a multiple of n_head = {}; a head is n_embd / n_head wide",
        reader.where(), config.hidden, config.heads));
  }
  config.head_dim = config.hidden / config.heads;
  config.norm_epsilon = reader.positive("layer_norm_epsilon", 1e-5);
  config.initializer_range = reader.positive("initializer_range", 0.02);
  config.tied = reader.boolean("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.residual_dropout = reader.rate("resid_pdrop", 0.1);
  config.embedding_dropout = reader.rate("embd_pdrop", 0.1);
  config.attention_dropout = reader.rate("attn_pdrop", 0.1);
  config.bos = 50256;
  config.eos = {50256};
  read_activation(reader, config);
  reader.only("scale_attn_weights", true);
  reader.only("scale_attn_by_inverse_layer_idx", false);
  // The upcast changes precision, not the function; attention computes in float32 here anyway.
  reader.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj",
                 "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
}

void write(const ModelConfig& config, Json& json) {
  json["architectures"] = Json::array({"GPT2LMHeadModel"});
  json["n_embd"] = config.hidden;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_positions"] = config.max_positions;
  json["n_inner"] = config.feed_forward;
  json["activation_function"] = config.gelu_tanh ? "gelu_new" : "gelu";
  json["layer_norm_epsilon"] = config.norm_epsilon;
  json["resid_pdrop"] = config.residual_dropout;
  json["embd_pdrop"] = config.embedding_dropout;
  json["attn_pdrop"] = config.attention_dropout;
}

}  // namespace sw::gpt2
