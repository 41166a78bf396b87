#include "model/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "model/model.hpp"
#include "tests/model/refused.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelConfig read(const std::string& keys) {
  return config_from_json("{" + keys + "}", "config.json");
}
std::string refused(const std::string& keys) {
  return refusal<ConfigError>([&] { (void)read(keys); });
}

// LlamaConfig(), MistralConfig(), Qwen2Config() and GPT2Config() of the `transformers` library.
TEST(ModelConfig, AbsentKeysMeanWhatTheyMeanInTheLibrary) {
  const ModelConfig llama = read(R"("model_type": "llama")");
  EXPECT_EQ(llama.vocabulary, 32000);
  EXPECT_EQ(llama.feed_forward, 11008);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_FALSE(llama.tied);
  const ModelConfig mistral = read(R"("model_type": "mistral")");
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.window, 4096);
  EXPECT_EQ(mistral.feed_forward, 14336);
  const ModelConfig qwen2 = read(R"("model_type": "qwen2")");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.window, 0);
  const ModelConfig mixtral = read(R"("model_type": "mixtral")");
  EXPECT_EQ(mixtral.experts, 8);
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.expert_feed_forward, 14336);
  EXPECT_TRUE(mixtral.normalize_gates);
  EXPECT_EQ(mixtral.window, 0);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5);
  const ModelConfig qwen2_moe = read(R"("model_type": "qwen2_moe")");
  EXPECT_EQ(qwen2_moe.hidden, 2048);
  EXPECT_EQ(qwen2_moe.experts, 60);
  EXPECT_EQ(qwen2_moe.experts_per_token, 4);
  EXPECT_EQ(qwen2_moe.expert_feed_forward, 1408);
  EXPECT_EQ(qwen2_moe.shared_feed_forward, 5632);
  EXPECT_FALSE(qwen2_moe.normalize_gates);
  EXPECT_TRUE(qwen2_moe.qkv_bias);
  EXPECT_EQ(qwen2_moe.rope.theta, 10000);
  const ModelConfig qwen3_moe = read(R"("model_type": "qwen3_moe")");
  EXPECT_EQ(qwen3_moe.experts, 128);
  EXPECT_EQ(qwen3_moe.experts_per_token, 8);
  EXPECT_EQ(qwen3_moe.expert_feed_forward, 768);
  EXPECT_EQ(qwen3_moe.shared_feed_forward, 0);
  EXPECT_EQ(qwen3_moe.kv_heads, 4);
  EXPECT_TRUE(qwen3_moe.head_norm);
  EXPECT_FALSE(qwen3_moe.qkv_bias);
  const ModelConfig gpt2 = read(R"("model_type": "gpt2")");
  EXPECT_EQ(gpt2.feed_forward, 3072);
  EXPECT_EQ(gpt2.residual_dropout, 0.1);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_TRUE(gpt2.tied);
}

TEST(ModelConfig, NullSaysWhatItSaysInTheLibrary) {
  EXPECT_EQ(read(R"("model_type": "mistral", "sliding_window": null)").window, 0);
  EXPECT_EQ(read(R"("model_type": "mistral", "num_key_value_heads": null)").kv_heads, 32);
  EXPECT_EQ(read(R"("model_type": "llama", "bos_token_id": null)").bos, -1);
  EXPECT_EQ(read(R"("model_type": "gpt2", "n_inner": null)").feed_forward, 3072);
}

// Case C068.
TEST(ModelConfig, AnExplicitHeadSizeWins) {
  const std::string sizes = R"("model_type": "llama", "hidden_size": 40, "num_attention_heads": 3,
                               "num_key_value_heads": 1)";
  EXPECT_EQ(read(sizes + R"(, "head_dim": 16)").head_dim, 16);
  EXPECT_THAT(refused(sizes), AllOf(HasSubstr("hidden_size = 40"),
                                    HasSubstr("num_attention_heads = 3"), HasSubstr("head_dim")));
  EXPECT_THAT(refused(sizes + R"(, "head_dim": 15)"), HasSubstr("head_dim = 15 is odd"));
}

TEST(ModelConfig, SizesThatDoNotDivideAreRefusedWithBothNumbers) {
  EXPECT_THAT(
      refused(R"("model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5)"),
      AllOf(HasSubstr("num_key_value_heads = 5"), HasSubstr("num_attention_heads = 32")));
  EXPECT_THAT(refused(R"("model_type": "gpt2", "n_embd": 100, "n_head": 3)"),
              AllOf(HasSubstr("n_embd = 100"), HasSubstr("n_head = 3")));
}

TEST(ModelConfig, KeysThatWouldChangeTheComputationAreRefusedWithTheirValue) {
  EXPECT_THAT(refused(R"("model_type": "mamba")"),
              AllOf(HasSubstr("model_type = \"mamba\""), HasSubstr("llama, mistral")));
  EXPECT_THAT(refused(R"("hidden_size": 64)"), HasSubstr("model_type"));
  const auto llama = [](const std::string& key) {
    return refused(R"("model_type": "llama", )" + key);
  };
  EXPECT_THAT(llama(R"("hidden_act": "gelu")"), HasSubstr("hidden_act = \"gelu\""));
  EXPECT_THAT(llama(R"("pretraining_tp": 2)"), HasSubstr("pretraining_tp = 2"));
  EXPECT_THAT(llama(R"("sliding_window": 512)"), HasSubstr("sliding_window = 512"));
  EXPECT_THAT(llama(R"("partial_rotary_factor": 0.25)"), HasSubstr("partial_rotary_factor = 0.25"));
  EXPECT_THAT(llama(R"("quantization_config": {"bits": 4})"), HasSubstr("quantization_config"));
  EXPECT_THAT(llama(R"("layer_types": ["sliding_attention"])"), HasSubstr("layer_types"));
  EXPECT_THAT(refused(R"("model_type": "qwen2", "use_sliding_window": true)"),
              HasSubstr("use_sliding_window = true"));
  const auto gpt2 = [](const std::string& key) {
    return refused(R"("model_type": "gpt2", )" + key);
  };
  EXPECT_THAT(gpt2(R"("activation_function": "relu")"), HasSubstr("\"relu\""));
  EXPECT_THAT(gpt2(R"("scale_attn_weights": false)"), HasSubstr("scale_attn_weights = false"));
  EXPECT_THAT(gpt2(R"("scale_attn_by_inverse_layer_idx": true)"), HasSubstr("= true"));
  EXPECT_THAT(gpt2(R"("n_embd": 768, "hidden_size": 64)"),
              AllOf(HasSubstr("hidden_size = 64"), HasSubstr("n_embd = 768")));
}

TEST(ModelConfig, LayersWithoutExpertsAreListedOrOfTheStep) {
  const auto dense = [](const std::string& keys) {
    return read(R"("model_type": "qwen3_moe", "num_hidden_layers": 6, )" + keys).dense_layers;
  };
  EXPECT_THAT(dense(R"("decoder_sparse_step": 1, "mlp_only_layers": [])"), testing::IsEmpty());
  EXPECT_THAT(dense(R"("mlp_only_layers": [4, 0])"), testing::ElementsAre(0, 4));
  EXPECT_THAT(dense(R"("decoder_sparse_step": 3)"), testing::ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(dense(R"("decoder_sparse_step": 3, "mlp_only_layers": [5])"),
              testing::ElementsAre(0, 1, 3, 4, 5));
}

TEST(ModelConfig, OfExpertsRefusesWhatWouldChangeTheComputation) {
  const auto mixtral = [](const std::string& key) {
    return refused(R"("model_type": "mixtral", )" + key);
  };
  EXPECT_THAT(mixtral(R"("router_jitter_noise": 0.1)"), HasSubstr("router_jitter_noise = 0.1"));
  EXPECT_THAT(mixtral(R"("output_router_logits": true)"), HasSubstr("output_router_logits = true"));
  EXPECT_THAT(mixtral(R"("num_local_experts": 3, "num_experts_per_tok": 4)"),
              AllOf(HasSubstr("num_experts_per_tok = 4"), HasSubstr("the 3 experts")));
  EXPECT_THAT(mixtral(R"("num_local_experts": 4, "num_experts": 8)"),
              AllOf(HasSubstr("num_experts = 8"), HasSubstr("num_local_experts = 4")));
  EXPECT_EQ(mixtral(R"("num_experts": 4, "router_aux_loss_coef": 0.02,
                       "router_jitter_noise": 0.0, "output_router_logits": false)"),
            "");
  const auto qwen = [](const std::string& key) {
    return refused(R"("model_type": "qwen2_moe", )" + key);
  };
  EXPECT_THAT(qwen(R"("use_sliding_window": true)"), HasSubstr("use_sliding_window = true"));
  EXPECT_THAT(qwen(R"("mlp_only_layers": [24])"),
              AllOf(HasSubstr("mlp_only_layers = [24]"), HasSubstr("0 to 23")));
  EXPECT_THAT(qwen(R"("decoder_sparse_step": 0)"), HasSubstr("decoder_sparse_step = 0"));
  EXPECT_THAT(refused(R"("model_type": "qwen3_moe", "shared_expert_intermediate_size": 64)"),
              HasSubstr("shared_expert_intermediate_size = 64"));
}

TEST(ModelConfig, UnknownKeysAreRefusedNamingTheNearest) {
  EXPECT_THAT(refused(R"("model_type": "llama", "hiden_size": 64)"),
              AllOf(HasSubstr("hiden_size = 64"), HasSubstr("nearest known key: hidden_size")));
  EXPECT_EQ(read(R"("model_type": "llama", "_name_or_path": "x", "transformers_version": "4.44.0",
                     "torch_dtype": "bfloat16", "use_cache": true)"),
            read(R"("model_type": "llama")"));
}

TEST(ModelConfig, ValuesOfAnotherKindAreRefused) {
  for (const char* const value :
       {"0", "-3", "1.5", "\"64\"", "true", "4294967296", "18446744073709551615", "[]"}) {
    EXPECT_THAT(refused(std::string(R"("model_type": "llama", "vocab_size": )") + value),
                HasSubstr("vocab_size = "))
        << value;
  }
  EXPECT_THAT(refused(R"("model_type": "llama", "rms_norm_eps": 0)"),
              HasSubstr("rms_norm_eps = 0"));
  EXPECT_THAT(refused(R"("model_type": "gpt2", "resid_pdrop": 1)"), HasSubstr("resid_pdrop = 1"));
  EXPECT_THAT(refused(R"("model_type": "llama", "tie_word_embeddings": 1)"),
              HasSubstr("tie_word_embeddings = 1"));
}

TEST(ModelConfig, WrittenAndReadAgainIsTheSame) {
  std::vector<ModelConfig> configs;
  for (const std::string& name : preset_names()) {
    configs.push_back(preset(name));
  }
  for (const char* const keys :
       {R"("model_type": "llama", "head_dim": 16, "hidden_size": 40, "num_attention_heads": 3,
           "num_key_value_heads": 1, "tie_word_embeddings": true, "attention_bias": true,
           "mlp_bias": true, "eos_token_id": [7, 8], "pad_token_id": -1, "bos_token_id": null)",
        R"("model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.5})",
        R"("model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
           "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})",
        R"("model_type": "mistral", "sliding_window": null)",
        R"("model_type": "mistral", "sliding_window": 77)", R"("model_type": "qwen2")",
        R"("model_type": "mixtral", "sliding_window": 77, "num_experts_per_tok": 1)",
        R"("model_type": "qwen2_moe", "mlp_only_layers": [0, 5], "qkv_bias": false)",
        R"("model_type": "qwen2_moe", "decoder_sparse_step": 2, "norm_topk_prob": true)",
        R"("model_type": "qwen3_moe", "attention_bias": true, "head_dim": 128)",
        R"("model_type": "gpt2", "activation_function": "gelu", "tie_word_embeddings": false,
           "n_inner": 100, "eos_token_id": null)"}) {
    configs.push_back(read(keys));
  }
  for (const ModelConfig& config : configs) {
    const std::string text = to_json(config, DType::Float32);
    EXPECT_EQ(config_from_json(text, "again"), config) << text;
  }
}

TEST(Presets, HaveTheirPublishedParameterCounts) {
  // GPT-2 small: 124,439,808 (its model card). Llama: V D twice, and per layer 2 D norms, D (2 H +
  // 2 G) K of attention and 3 D F.
  EXPECT_EQ(parameter_count(preset("gpt2")), 124439808);
  EXPECT_EQ(parameter_count(preset("llama-tiny")),
            2 * 259 * 64 + 4 * (2 * 64 + 64 * (2 * 4 + 2 * 2) * 16 + 3 * 64 * 192) + 64);
  EXPECT_EQ(parameter_count(preset("llama-small")),
            2 * 259 * 256 + 8 * (2 * 256 + 256 * (2 * 8 + 2 * 4) * 32 + 3 * 256 * 768) + 256);
  // As llama-tiny's, but for a router and four experts.
  EXPECT_EQ(
      parameter_count(preset("mixtral-tiny")),
      2 * 259 * 64 + 4 * (2 * 64 + 64 * (2 * 4 + 2 * 2) * 16 + 4 * 64 + 4 * 3 * 64 * 128) + 64);
  // 12 D^2 + 13 D per layer, tables, final norm.
  EXPECT_EQ(parameter_count(preset("gpt2-small-384")),
            (50257 + 1024) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384);
}

TEST(ActiveParameters, CountTheChosenExpertsOnly) {
  EXPECT_EQ(active_parameter_count(preset("llama-tiny")), parameter_count(preset("llama-tiny")));
  ModelConfig chosen_only = preset("mixtral-tiny");
  chosen_only.experts = 2;
  // A router of two experts is smaller too.
  EXPECT_EQ(active_parameter_count(preset("mixtral-tiny")),
            parameter_count(chosen_only) + 4 * 2 * 64);
  // Their model cards: 46.7B and 12.9B; 30.5B and 3.3B.
  const ModelConfig mixtral = read(R"("model_type": "mixtral")");
  EXPECT_NEAR(static_cast<double>(parameter_count(mixtral)), 46.7e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(mixtral)), 12.9e9, 0.05e9);
  const ModelConfig qwen3 =
      read(R"("model_type": "qwen3_moe", "num_hidden_layers": 48, "head_dim": 128)");
  EXPECT_NEAR(static_cast<double>(parameter_count(qwen3)), 30.5e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(qwen3)), 3.3e9, 0.06e9);
  // Some layers without experts.
  const auto with = [](const std::string& keys) {
    return read(R"("model_type": "qwen2_moe", "num_hidden_layers": 4, )" + keys);
  };
  const std::int64_t expert = 3 * 2048 * 1408;
  EXPECT_EQ(active_parameter_count(with(R"("mlp_only_layers": [2])")),
            parameter_count(with(R"("mlp_only_layers": [2])")) - 3 * 56 * expert);
}

TEST(Presets, AnUnknownNameListsThem) {
  EXPECT_THAT(refusal<ConfigError>([] { (void)preset("lama"); }),
              AllOf(HasSubstr("\"lama\""), HasSubstr("llama-tiny, mixtral-tiny, llama-small")));
}

TEST(ModelOptionsOfARun, NameAModelInOneOfThreeWays) {
  EXPECT_EQ(model_config({.preset = "gpt2", .path = "", .config = ""}), preset("gpt2"));
  EXPECT_EQ(model_config({.preset = "", .path = "", .config = R"({"model_type": "llama"})"}),
            read(R"("model_type": "llama")"));
  EXPECT_THAT(refusal<ConfigError>([] { (void)model_config({}); }), HasSubstr("preset, path"));
  EXPECT_EQ(model_config({.preset = "mixtral-tiny", .path = "", .config = "", .balance_loss = 0.1})
                .balance_loss,
            0.1);
  EXPECT_THAT(
      refusal<ConfigError>([] {
        (void)model_config({.preset = "gpt2", .path = "", .config = "", .balance_loss = 0.1});
      }),
      HasSubstr("a gpt2 has none"));
  EXPECT_THAT(refusal<ConfigError>([] {
                (void)model_config({.preset = "gpt2", .path = "", .config = "", .z_loss = 0.1});
              }),
              HasSubstr("model.z_loss = 0.1 is for models with experts"));
  EXPECT_THAT(
      refusal<ConfigError>([] {
        (void)model_config({.preset = "gpt2", .path = "", .config = "", .balance_bias = 0.1});
      }),
      HasSubstr("model.balance_bias = 0.1 is for models with experts"));
  for (const double coefficient : {-0.1, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(
        refusal<ConfigError>([&] {
          (void)model_config(
              {.preset = "mixtral-tiny", .path = "", .config = "", .balance_loss = coefficient});
        }),
        HasSubstr("use 0 or more"));
  }
  EXPECT_THAT(
      refusal<Error>([] { (void)model_config({.preset = "", .path = "/nowhere", .config = ""}); }),
      HasSubstr("/nowhere/config.json"));
}

}  // namespace
}  // namespace sw
