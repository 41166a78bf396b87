#include "model/config.hpp"

#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "model/config_reader.hpp"
#include "model/families.hpp"

namespace sw {
namespace {

constexpr std::int64_t kMaxConfigBytes = 16 << 20;

/// Keys that every config.json may carry. What would change the computation is held to its neutral
/// value.
void read_common(ConfigReader& reader) {
  reader.ignore({"architectures",
                 "torch_dtype",
                 "dtype",
                 "transformers_version",
                 "use_cache",
                 "return_dict",
                 "return_dict_in_generate",
                 "output_attentions",
                 "output_hidden_states",
                 "output_scores",
                 "torchscript",
                 "tf_legacy_loss",
                 "finetuning_task",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "prefix",
                 "task_specific_params",
                 "tokenizer_class",
                 "name_or_path",
                 "model_type",
                 "sep_token_id",
                 "unk_token_id",
                 "decoder_start_token_id",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "max_length",
                 "min_length",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "exponential_decay_length_penalty",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "remove_invalid_values",
                 "gradient_checkpointing"});
  reader.only("quantization_config", Json());
  reader.only("pruned_heads", Json::object());
  reader.only("per_layer_config", Json());
  reader.only("chunk_size_feed_forward", 0);
  reader.only("is_encoder_decoder", false);
  reader.only("add_cross_attention", false);
  reader.only("tie_encoder_decoder", false);
  reader.only("cross_attention_hidden_size", Json());
  reader.only("is_decoder", false);
  reader.only("use_bfloat16", false);
  reader.only("partial_rotary_factor", 1);
  reader.only("auto_map", Json());
}

/// Here a null is not an absent key: it says that there is no such token. So do some files' -1.
void read_token_ids(ConfigReader& reader, ModelConfig& config) {
  config.bos = reader.integer("bos_token_id", reader.present("bos_token_id") ? -1 : config.bos, -1);
  config.pad = reader.integer("pad_token_id", -1, -1);
  const Json& eos = reader.value("eos_token_id");
  if (eos.is_array()) {
    config.eos.clear();
    for (const Json& id : eos) {
      if (!id.is_number_integer()) {
        reader.refuse("eos_token_id", "must be a token id or a list of them");
      }
      config.eos.push_back(id.get<std::int64_t>());
    }
  } else if (reader.present("eos_token_id")) {
    const std::int64_t id = reader.integer("eos_token_id", -1, -1);
    config.eos = id < 0 ? std::vector<std::int64_t>() : std::vector<std::int64_t>{id};
  }
}

void check_heads(const ModelConfig& config, const std::string& where) {
  if (config.heads % config.kv_heads != 0) {
    throw ConfigError(fmt::format(
        "{}: num_key_value_heads = {} does not divide num_attention_heads = {}; each KV head "
        "serves the same number of query heads",
        where, config.kv_heads, config.heads));
  }
  if (config.family == Family::Llama && config.head_dim % 2 != 0) {
    throw ConfigError(fmt::format(
        "{}: head_dim = {} is odd, but rope turns pairs of numbers; use an even head_dim", where,
        config.head_dim));
  }
}

/// The model that `options` names.
ModelConfig named_config(const ModelOptions& options) {
  if (!options.preset.empty()) {
    return preset(options.preset);
  }
  if (!options.config.empty()) {
    return config_from_json(options.config, "model.config");
  }
  if (options.path.empty()) {
    throw ConfigError("model: nothing says what the model is; give preset, path or [model.config]");
  }
  const std::filesystem::path file = std::filesystem::path(options.path) / "config.json";
  return config_from_json(read_whole_file(file, kMaxConfigBytes), file.string());
}

/// Of something that routers add to training.
void check_coefficient(const char* key, double value, const ModelConfig& config) {
  if (!(value >= 0) || std::isinf(value)) {
    throw ConfigError(fmt::format("model.{} = {} is out of range; use 0 or more", key, value));
  }
  if (value > 0 && config.experts == 0) {
    throw ConfigError(
        fmt::format("model.{} = {} is for models with experts, and a {} has none; set it to 0", key,
                    value, config.model_type));
  }
}

}  // namespace

ModelConfig config_from_json(std::string_view text, std::string_view where) {
  const Json json = parse_json(text, where);
  ConfigReader reader(json, std::string(where));
  const std::string type = reader.text("model_type", "");
  const FamilyDefinition& family = family_of(type, where);
  ModelConfig config;
  config.family = family.family;
  config.model_type = type;
  family.read(reader, config);
  read_common(reader);
  read_token_ids(reader, config);
  reader.finish();
  check_heads(config, reader.where());
  return config;
}

std::string to_json(const ModelConfig& config, DType stored) {
  Json json;
  json["model_type"] = config.model_type;
  json["torch_dtype"] = to_text(stored);
  json["vocab_size"] = config.vocabulary;
  family_of(config.model_type, "model").write(config, json);
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tied;
  json["bos_token_id"] = config.bos < 0 ? Json() : Json(config.bos);
  json["eos_token_id"] = config.eos.empty()       ? Json()
                         : config.eos.size() == 1 ? Json(config.eos.front())
                                                  : Json(config.eos);
  json["pad_token_id"] = config.pad < 0 ? Json() : Json(config.pad);
  return json.dump(2) + "\n";
}

ModelConfig model_config(const ModelOptions& options) {
  ModelConfig config = named_config(options);
  config.balance_loss = options.balance_loss;
  config.z_loss = options.z_loss;
  check_coefficient("balance_loss", config.balance_loss, config);
  config.balance_bias = options.balance_bias;
  check_coefficient("z_loss", config.z_loss, config);
  check_coefficient("balance_bias", config.balance_bias, config);
  config.expert_capacity = options.expert_capacity;
  check_coefficient("expert_capacity", config.expert_capacity, config);
  if (config.expert_capacity > 0 && config.balance_bias > 0) {
    throw ConfigError(
        "model.expert_capacity and model.balance_bias: biases would balance what experts take, "
        "which "
        "the capacity caps already; keep one of them");
  }
  return config;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    count += elements(spec.shape);
  }
  return count;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
  const std::int64_t of_one_expert = 3 * config.hidden * config.expert_feed_forward;
  const std::int64_t layers = config.layers - static_cast<std::int64_t>(config.dense_layers.size());
  return parameter_count(config) -
         layers * (config.experts - config.experts_per_token) * of_one_expert;
}

ModelConfig for_evaluation(ModelConfig config) {
  config.embedding_dropout = 0;
  config.residual_dropout = 0;
  config.attention_dropout = 0;
  config.balance_loss = 0;
  config.z_loss = 0;
  config.expert_capacity = 0;
  config.count_load = false;
  return config;
}

}  // namespace sw
