#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/config.hpp"

namespace sw {
namespace {

/// Sizes of a preset that differ from model to model.
struct Sizes {
  std::int64_t vocabulary;
  std::int64_t hidden;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t feed_forward;
  std::int64_t max_positions;
};

/// Ids of the tokenizer "bytes".
constexpr std::int64_t kBytesVocabulary = 259;
constexpr std::int64_t kBos = 256;
constexpr std::int64_t kEos = 257;
constexpr std::int64_t kPad = 258;
constexpr std::int64_t kGpt2Vocabulary = 50257;

ModelConfig of_sizes(const Sizes& sizes) {
  ModelConfig config;
  config.vocabulary = sizes.vocabulary;
  config.hidden = sizes.hidden;
  config.layers = sizes.layers;
  config.heads = sizes.heads;
  config.kv_heads = sizes.kv_heads;
  config.head_dim = sizes.hidden / sizes.heads;
  config.feed_forward = sizes.feed_forward;
  config.max_positions = sizes.max_positions;
  return config;
}

ModelConfig llama_preset(const Sizes& sizes) {
  ModelConfig config = of_sizes(sizes);
  config.bos = kBos;
  config.eos = {kEos};
  config.pad = kPad;
  return config;
}

ModelConfig mixtral_preset(const Sizes& sizes) {
  ModelConfig config = llama_preset(sizes);
  config.model_type = "mixtral";
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_feed_forward = sizes.feed_forward;
  return config;
}

/// Without dropout, as GPT-2 is trained today.
ModelConfig gpt2_preset(const Sizes& sizes) {
  ModelConfig config = of_sizes(sizes);
  config.family = Family::Gpt2;
  config.model_type = "gpt2";
  config.tied = true;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.bos = kGpt2Vocabulary - 1;
  config.eos = {kGpt2Vocabulary - 1};
  return config;
}

struct Preset {
  std::string_view name;
  ModelConfig (*make)(const Sizes&);
  Sizes sizes;
};

constexpr Preset kPresets[] = {
    {"llama-tiny", llama_preset, {kBytesVocabulary, 64, 4, 4, 2, 192, 2048}},
    {"mixtral-tiny", mixtral_preset, {kBytesVocabulary, 64, 4, 4, 2, 128, 2048}},
    {"llama-small", llama_preset, {kBytesVocabulary, 256, 8, 8, 4, 768, 2048}},
    {"gpt2-small-384", gpt2_preset, {kGpt2Vocabulary, 384, 6, 6, 6, 1536, 1024}},
    {"gpt2", gpt2_preset, {kGpt2Vocabulary, 768, 12, 12, 12, 3072, 1024}},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    names.emplace_back(preset.name);
  }
  return names;
}

ModelConfig preset(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kPresets), std::end(kPresets),
                   [&](const Preset& candidate) { return candidate.name == name; });
  if (found == std::end(kPresets)) {
    throw ConfigError(fmt::format("model.preset = \"{}\" is unknown; presets are: {}", name,
                                  fmt::join(preset_names(), ", ")));
  }
  return found->make(found->sizes);
}

}  // namespace sw
