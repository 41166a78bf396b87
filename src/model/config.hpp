#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/kernel.hpp"
#include "model/options.hpp"

/// What a model is: the sizes and choices of a Hugging Face config.json, without the spellings.
namespace sw {

enum class Family : std::uint8_t {
  Llama,  ///< rms_norm, rope, swiglu: model_type llama, mistral, qwen2 and those with experts
  Gpt2,   ///< layer_norm, learned positions, gelu: model_type gpt2
};

struct ModelConfig {
  Family family = Family::Llama;
  std::string model_type = "llama";  ///< as config.json spells it
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t feed_forward = 0;
  /// Gpt2: rows of the position table, which a sequence cannot exceed. Llama: what the model was
  /// trained for; rope itself knows no end.
  std::int64_t max_positions = 0;
  double norm_epsilon = 1e-5;
  kernels::RopeParameters rope;  ///< Llama
  bool tied = false;             ///< the head is the embedding
  bool qkv_bias = false;
  bool output_bias = false;  ///< of attention's output projection
  bool mlp_bias = false;
  bool head_norm = false;  ///< rms_norm of each head's query and key, before rope
  /// 0: none. Else every layer but `dense_layers` has this many in place of its feed-forward.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_feed_forward = 0;
  std::int64_t shared_feed_forward = 0;  ///< of the expert that every token sees; 0 = none
  bool normalize_gates = true;           ///< the weights of a token's experts sum to 1
  std::vector<std::int64_t> dense_layers;
  bool gelu_tanh = true;  ///< Gpt2: the tanh form, else erf
  double embedding_dropout = 0;
  double residual_dropout = 0;
  /// Carried so that a published folder can be read, generated from and written back; `build`
  /// refuses to train with it.
  double attention_dropout = 0;
  /// Not of config.json: coefficients of what routers add to the loss in training; 0 = nothing.
  double balance_loss = 0;
  double z_loss = 0;
  /// Likewise: how far an update moves the biases with which routers choose; 0 = they have none.
  double balance_bias = 0;
  /// Likewise: slots that an expert takes of those that a rank has, in even loads; 0 = all.
  double expert_capacity = 0;
  bool count_load = true;  ///< likewise: the slots of each expert are counted in training
  double initializer_range = 0.02;
  std::int64_t window = 0;  ///< attention sees this many positions back, itself included; 0 = all
  std::int64_t bos = -1;    ///< token ids; -1 = none
  std::int64_t pad = -1;
  std::vector<std::int64_t> eos;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// The model that [model] of a run file names. Throws ConfigError (DataError for a folder without a
/// readable config.json).
[[nodiscard]] ModelConfig model_config(const ModelOptions& options);

/// Reads a config.json; `where` names it in messages. Absent keys mean what they mean in the
/// `transformers` library. Throws ConfigError naming key and value for everything that would change
/// the computation and is not supported, and for keys that nobody knows.
[[nodiscard]] ModelConfig config_from_json(std::string_view text, std::string_view where);

/// The config.json that `transformers` (4 and 5) and `config_from_json` read back as this model.
/// `stored` is the type of the weights beside it.
[[nodiscard]] std::string to_json(const ModelConfig& config, DType stored);

/// Names of the presets, smallest model first.
[[nodiscard]] std::vector<std::string> preset_names();
/// Throws ConfigError listing the presets for an unknown name.
[[nodiscard]] ModelConfig preset(std::string_view name);

/// Trained numbers; a tied head counts once.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config);

/// Of those, what a token is multiplied with: of the experts only the chosen.
[[nodiscard]] std::int64_t active_parameter_count(const ModelConfig& config);

/// The same model with every dropout and what trains or watches routers off: for validation and
/// generation.
[[nodiscard]] ModelConfig for_evaluation(ModelConfig config);

}  // namespace sw
