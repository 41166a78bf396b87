#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/operator.hpp"
#include "model/model.hpp"
#include "model/parameters.hpp"
#include "tests/model/refused.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig gpt2_with_dropout() {
  ModelConfig config = preset("gpt2");
  config.embedding_dropout = 0.1;
  config.residual_dropout = 0.2;
  return config;
}

std::vector<const Op*> ops_named(const Graph& graph, const std::string& definition) {
  std::vector<const Op*> found;
  for (const Op& op : graph.ops()) {
    if (op.definition->name == definition) {
      found.push_back(&op);
    }
  }
  return found;
}

TEST(ModelGraph, ALlamaLayerReadsAsItsEquations) {
  const ModelGraph model = build(preset("llama-tiny"), 2, 8, DType::Float32);
  std::vector<std::string> layer;
  for (const Op& op : model.graph.ops()) {
    if (op.layer == 1) {
      layer.push_back(op.definition->name);
    }
  }
  EXPECT_THAT(layer, ElementsAre("rms_norm", "einsum", "einsum", "einsum", "rope", "rope",
                                 "attention", "einsum", "add", "rms_norm", "einsum", "einsum",
                                 "swiglu", "einsum", "add"));
}

TEST(ModelGraph, ALayerOfExpertsReadsAsItsEquations) {
  const auto after_attention = [](const ModelConfig& config, int layer) {
    const ModelGraph model = build(config, 2, 8, DType::Float32);
    std::vector<std::string> ops;
    for (const Op& op : model.graph.ops()) {
      if (op.layer == layer) {
        ops.push_back(op.definition->name);
      }
    }
    const auto residual = std::find(ops.begin(), ops.end(), "add");
    return std::vector<std::string>(residual + 1, ops.end());
  };
  EXPECT_THAT(
      after_attention(preset("mixtral-tiny"), 1),
      ElementsAre("rms_norm", "dispatch", "einsum", "route", "expert_load", "expert_product",
                  "expert_product", "swiglu", "scale_rows", "expert_product", "combine", "add"));
  EXPECT_THAT(
      after_attention(for_evaluation(preset("mixtral-tiny")), 1),
      ElementsAre("rms_norm", "dispatch", "einsum", "route", "expert_product", "expert_product",
                  "swiglu", "scale_rows", "expert_product", "combine", "add"));
  const ModelConfig qwen =
      config_from_json(R"({"model_type": "qwen2_moe", "mlp_only_layers": [1], "vocab_size": 16,
                           "num_hidden_layers": 2})",
                       "config.json");
  EXPECT_THAT(
      after_attention(qwen, 0),
      ElementsAre("rms_norm", "dispatch", "einsum", "route", "expert_load", "expert_product",
                  "expert_product", "swiglu", "scale_rows", "expert_product", "combine", "einsum",
                  "sigmoid", "einsum", "einsum", "swiglu", "scale_rows", "einsum", "add", "add"));
  EXPECT_THAT(after_attention(qwen, 1),
              ElementsAre("rms_norm", "einsum", "einsum", "swiglu", "einsum", "add"));
}

TEST(ModelGraph, ParametersStandAsTheirSpecsSay) {
  for (const std::string& name : preset_names()) {
    const ModelGraph model = build(preset(name), 1, 4, DType::BFloat16);
    const std::vector<ParameterSpec> specs = parameter_specs(preset(name));
    const std::vector<ValueId> parameters = model.graph.parameters();
    ASSERT_EQ(parameters.size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const Value& value = model.graph.value(parameters[i]);
      EXPECT_EQ(value.name, specs[i].name);
      EXPECT_EQ(value.shape, specs[i].shape);
      EXPECT_EQ(value.layer, specs[i].layer);
      EXPECT_EQ(value.decay, specs[i].decay);
      EXPECT_EQ(value.dtype, DType::BFloat16);
    }
    EXPECT_EQ(model.graph.value(model.logits).dtype, DType::Float32);
  }
}

TEST(ModelGraph, TheResidualStreamIsMarked) {
  const auto residuals = [](const ModelGraph& model) {
    int count = 0;
    for (const Value& value : model.graph.values()) {
      count += value.residual ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(residuals(build(preset("llama-tiny"), 1, 4, DType::Float32)), 1 + 2 * 4);
  // Two embeddings, their sum, its dropout; twice a layer a bias, its dropout and the addition.
  EXPECT_EQ(residuals(build(gpt2_with_dropout(), 1, 4, DType::Float32)), 4 + 2 * 3 * 12);
}

TEST(ModelGraph, EveryDropoutHasAStreamOfItsOwn) {
  const ModelGraph model = build(gpt2_with_dropout(), 2, 4, DType::Float32);
  const std::vector<const Op*> dropouts = ops_named(model.graph, "dropout");
  ASSERT_EQ(dropouts.size(), 1U + 2U * 12U);
  for (std::size_t i = 0; i < dropouts.size(); ++i) {
    const auto& parameters = std::get<kernels::DropoutParameters>(dropouts[i]->parameters);
    EXPECT_EQ(parameters.stream, static_cast<std::int64_t>(i));
    EXPECT_EQ(parameters.rate, i == 0 ? 0.1 : 0.2);
    EXPECT_EQ(parameters.whole, (Shape{2, 4, 768}));
    EXPECT_EQ(dropouts[i]->inputs.at(1), model.dropout_key);
  }
}

TEST(ModelGraph, WithoutDropoutThereIsNone) {
  const ModelGraph model = build(for_evaluation(gpt2_with_dropout()), 2, 4, DType::Float32);
  EXPECT_TRUE(ops_named(model.graph, "dropout").empty());
  EXPECT_EQ(model.dropout_key, -1);
}

TEST(ModelGraph, WhatTheModelCannotDoIsRefused) {
  const auto refused = [](const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
    return refusal<ConfigError>([&] { (void)build(config, batch, sequence, DType::Float32); });
  };
  EXPECT_THAT(refused(preset("gpt2"), 1, 1025),
              AllOf(HasSubstr("sequence_length = 1025"), HasSubstr("n_positions = 1024")));
  EXPECT_EQ(refused(preset("gpt2"), 1, 1024), "");
  EXPECT_THAT(refused(preset("gpt2"), 0, 8), HasSubstr("0 sequences"));
  const ModelConfig published = config_from_json(R"({"model_type": "gpt2"})", "config.json");
  EXPECT_THAT(refused(published, 1, 8), HasSubstr("attn_pdrop = 0.1"));
  EXPECT_EQ(refused(for_evaluation(published), 1, 8), "");
}

}  // namespace
}  // namespace sw
