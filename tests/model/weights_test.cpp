#include "model/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "tests/model/refused.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string refused(const ModelConfig& config, const std::vector<StoredTensor>& tensors) {
  return refusal<DataError>([&] { (void)match_weights(config, tensors, "folder"); });
}

void remove(std::vector<StoredTensor>& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const StoredTensor& tensor) { return tensor.name == name; });
}

TEST(StoredTensors, AreThoseOfAPublishedFolder) {
  const auto gpt2 = stored_tensors(preset("gpt2"));
  EXPECT_EQ(gpt2.size(), 2U + 12U * 12U + 2U);
  EXPECT_THAT(gpt2,
              testing::Contains(StoredTensor{"transformer.h.11.attn.c_attn.weight", {768, 2304}}));
  EXPECT_THAT(gpt2, testing::Contains(StoredTensor{"transformer.h.0.attn.c_attn.bias", {2304}}));
  const auto llama = stored_tensors(preset("llama-tiny"));
  EXPECT_EQ(llama.size(), 1U + 4U * 9U + 2U);
  EXPECT_THAT(llama,
              testing::Contains(StoredTensor{"model.layers.3.self_attn.k_proj.weight", {32, 64}}));
}

// Names as in the folders of Mixtral-8x7B, Qwen1.5-MoE and Qwen3-30B-A3B.
TEST(StoredTensors, OfExpertsAreOneForEach) {
  const std::string mixtral = "model.layers.3.block_sparse_moe.";
  const auto tensors = stored_tensors(preset("mixtral-tiny"));
  EXPECT_EQ(tensors.size(), 1U + 4U * (7U + 3U * 4U) + 2U);
  EXPECT_THAT(tensors, testing::Contains(StoredTensor{mixtral + "gate.weight", {4, 64}}));
  EXPECT_THAT(tensors, testing::Contains(StoredTensor{mixtral + "experts.0.w1.weight", {128, 64}}));
  EXPECT_THAT(tensors, testing::Contains(StoredTensor{mixtral + "experts.3.w2.weight", {64, 128}}));
  EXPECT_THAT(tensors, testing::Contains(StoredTensor{mixtral + "experts.2.w3.weight", {128, 64}}));
  const auto qwen2 = stored_tensors(
      config_from_json(R"({"model_type": "qwen2_moe", "mlp_only_layers": [1]})", "config.json"));
  for (const StoredTensor& tensor :
       {StoredTensor{"model.layers.0.mlp.gate.weight", {60, 2048}},
        StoredTensor{"model.layers.0.mlp.experts.59.gate_proj.weight", {1408, 2048}},
        StoredTensor{"model.layers.0.mlp.experts.1.down_proj.weight", {2048, 1408}},
        StoredTensor{"model.layers.0.mlp.shared_expert.up_proj.weight", {5632, 2048}},
        StoredTensor{"model.layers.0.mlp.shared_expert_gate.weight", {1, 2048}},
        StoredTensor{"model.layers.0.self_attn.q_proj.bias", {2048}},
        StoredTensor{"model.layers.1.mlp.up_proj.weight", {5632, 2048}}}) {
    EXPECT_THAT(qwen2, testing::Contains(tensor));
  }
  const auto qwen3 =
      stored_tensors(config_from_json(R"({"model_type": "qwen3_moe"})", "config.json"));
  EXPECT_THAT(qwen3,
              testing::Contains(StoredTensor{"model.layers.0.self_attn.k_norm.weight", {64}}));
  EXPECT_THAT(qwen3, testing::Contains(StoredTensor{
                         "model.layers.23.mlp.experts.127.up_proj.weight", {768, 2048}}));
}

TEST(MatchWeights, TakesAFolderAsItIsPublished) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    const WeightMatch match = match_weights(config, stored_tensors(config), "folder");
    EXPECT_EQ(match.parameters, parameter_specs(config));
    EXPECT_TRUE(match.ignored.empty());
    EXPECT_TRUE(match.tied_copies.empty());
  }
}

TEST(MatchWeights, TakesNamesWithoutTheModelsPrefix) {
  const ModelConfig config = preset("gpt2");
  std::vector<StoredTensor> bare = stored_tensors(config);
  for (StoredTensor& tensor : bare) {
    tensor.name = tensor.name.substr(std::string("transformer.").size());
  }
  const WeightMatch match = match_weights(config, bare, "folder");
  EXPECT_EQ(match.parameters.at(0).name, "transformer.wte.weight");
  EXPECT_EQ(match.parameters.at(0).stored.at(0).tensor, "wte.weight");
  bare.push_back({"transformer.wte.weight", {50257, 768}});
  EXPECT_THAT(refused(config, bare), HasSubstr("not part of this model: "));
}

TEST(MatchWeights, IgnoresKnownLeftoversAndSaysSo) {
  const ModelConfig gpt2 = preset("gpt2");
  std::vector<StoredTensor> tensors = stored_tensors(gpt2);
  tensors.push_back({"transformer.h.0.attn.bias", {1, 1, 1024, 1024}});
  tensors.push_back({"transformer.h.0.attn.masked_bias", {}});
  EXPECT_THAT(match_weights(gpt2, tensors, "folder").ignored,
              ElementsAre("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"));
  const ModelConfig llama = preset("llama-tiny");
  tensors = stored_tensors(llama);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {8}});
  EXPECT_EQ(match_weights(llama, tensors, "folder").ignored.size(), 1U);
}

TEST(MatchWeights, ATiedHeadMayBeThereAndMustThenBeCompared) {
  const ModelConfig config = preset("gpt2");
  std::vector<StoredTensor> tensors = stored_tensors(config);
  tensors.push_back({"lm_head.weight", {50257, 768}});
  EXPECT_THAT(match_weights(config, tensors, "folder").tied_copies,
              ElementsAre(TiedCopy{"lm_head.weight", "transformer.wte.weight"}));
  tensors.back().shape = {50304, 768};
  EXPECT_THAT(refused(config, tensors),
              AllOf(HasSubstr("lm_head.weight is [50304, 768]"), HasSubstr("[50257, 768]")));
}

// Case C063: every model parameter is filled exactly once or the load fails listing names.
TEST(MatchWeights, ListsEveryTensorThatIsMissingUnknownOrOfAnotherShape) {
  const ModelConfig config = preset("llama-tiny");
  std::vector<StoredTensor> tensors = stored_tensors(config);
  remove(tensors, "model.norm.weight");
  remove(tensors, "model.layers.2.mlp.up_proj.weight");
  tensors.push_back({"model.layers.4.mlp.up_proj.weight", {192, 64}});
  tensors.push_back({"score.weight", {2, 64}});
  tensors.front().shape = {64, 259};
  EXPECT_THAT(
      refused(config, tensors),
      AllOf(HasSubstr("folder: "),
            HasSubstr("missing: model.layers.2.mlp.up_proj.weight, model.norm.weight;"),
            HasSubstr("model.embed_tokens.weight is [64, 259] and should be [259, 64]"),
            HasSubstr("not part of this model: model.layers.4.mlp.up_proj.weight, score.weight")));
}

TEST(MatchWeights, AnExpertThatIsMissingIsNamed) {
  const ModelConfig config = preset("mixtral-tiny");
  std::vector<StoredTensor> tensors = stored_tensors(config);
  const std::string prefix = "model.layers.1.block_sparse_moe.experts.";
  remove(tensors, prefix + "2.w3.weight");
  tensors.push_back({prefix + "4.w3.weight", {128, 64}});
  EXPECT_THAT(refused(config, tensors),
              AllOf(HasSubstr("missing: " + prefix + "2.w3.weight;"),
                    HasSubstr("not part of this model: " + prefix + "4.w3.weight")));
}

TEST(MatchWeights, AFusedTensorThatIsMissingIsNamedOnce) {
  const ModelConfig config = preset("gpt2");
  std::vector<StoredTensor> tensors = stored_tensors(config);
  const std::string name = "transformer.h.5.attn.c_attn.weight";
  remove(tensors, name);
  EXPECT_THAT(refused(config, tensors),
              AllOf(HasSubstr("missing: " + name + ";"), Not(HasSubstr(name + ", "))));
}

TEST(Runs, CoverEveryElementOfEveryTensorOnce) {
  for (const char* const name : {"gpt2-small-384", "mixtral-tiny"}) {
    ModelConfig config = preset(name);
    config.vocabulary = 10;
    std::map<std::string, std::vector<int>> hits;
    for (const StoredTensor& tensor : stored_tensors(config)) {
      hits[tensor.name].resize(static_cast<std::size_t>(elements(tensor.shape)));
    }
    for (const ParameterSpec& spec : parameter_specs(config)) {
      std::int64_t next = 0;
      for_each_run(spec.stored, {0, elements(spec.shape)}, [&](const StoredRun& run) {
        EXPECT_EQ(run.parameter, next);
        next += run.count;
        std::vector<int>& counts = hits.at(spec.stored.at(run.part).tensor);
        for (std::int64_t i = 0; i < run.count; ++i) {
          ++counts.at(static_cast<std::size_t>(run.tensor + i));
        }
      });
      EXPECT_EQ(next, elements(spec.shape));
    }
    for (const auto& [tensor, counts] : hits) {
      EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }))
          << tensor;
    }
  }
}

TEST(Runs, OfAFusedPartStepOverTheOthers) {
  const StoredPart key{"c_attn", {3, 6}, {{0, 3}, {2, 4}}};
  std::vector<std::int64_t> where;
  for_each_run({key}, {1, 5}, [&](const StoredRun& run) {
    where.insert(where.end(), {run.tensor, run.parameter, run.count});
  });
  EXPECT_THAT(where, ElementsAre(3, 1, 1, 8, 2, 2, 14, 4, 1));
}

TEST(Runs, OfSeveralTensorsGoOnInTheNext) {
  const std::vector<StoredPart> stored = {{"experts.0", {2, 3}, {{0, 2}, {0, 3}}},
                                          {"experts.1", {2, 3}, {{0, 2}, {0, 3}}},
                                          {"experts.2", {2, 3}, {{0, 2}, {0, 3}}},
                                          {"experts.3", {2, 3}, {{0, 2}, {0, 3}}}};
  std::vector<std::int64_t> where;
  for_each_run(stored, {8, 20}, [&](const StoredRun& run) {
    where.insert(where.end(),
                 {static_cast<std::int64_t>(run.part), run.tensor, run.parameter, run.count});
  });
  EXPECT_THAT(where, ElementsAre(1, 2, 8, 4, 2, 0, 12, 6, 3, 0, 18, 2));
}

}  // namespace
}  // namespace sw
