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
  EXPECT_EQ(match.parameters.at(0).stored.tensor, "wte.weight");
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

TEST(MatchWeights, AFusedTensorThatIsMissingIsNamedOnce) {
  const ModelConfig config = preset("gpt2");
  std::vector<StoredTensor> tensors = stored_tensors(config);
  const std::string name = "transformer.h.5.attn.c_attn.weight";
  remove(tensors, name);
  EXPECT_THAT(refused(config, tensors),
              AllOf(HasSubstr("missing: " + name + ";"), Not(HasSubstr(name + ", "))));
}

TEST(Runs, CoverEveryElementOfEveryTensorOnce) {
  ModelConfig config = preset("gpt2-small-384");
  config.vocabulary = 10;
  std::map<std::string, std::vector<int>> hits;
  for (const StoredTensor& tensor : stored_tensors(config)) {
    hits[tensor.name].resize(static_cast<std::size_t>(elements(tensor.shape)));
  }
  for (const ParameterSpec& spec : parameter_specs(config)) {
    for_each_run(spec.stored, {0, elements(spec.shape)}, [&](const StoredRun& run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        ++hits.at(spec.stored.tensor).at(static_cast<std::size_t>(run.tensor + i));
      }
    });
  }
  for (const auto& [name, counts] : hits) {
    EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; })) << name;
  }
}

TEST(Runs, OfAFusedPartStepOverTheOthers) {
  const StoredPart key{"c_attn", {3, 6}, {{0, 3}, {2, 4}}};
  std::vector<std::int64_t> where;
  for_each_run(key, {1, 5}, [&](const StoredRun& run) {
    where.insert(where.end(), {run.tensor, run.parameter, run.count});
  });
  EXPECT_THAT(where, ElementsAre(3, 1, 1, 8, 2, 2, 14, 4, 1));
}

}  // namespace
}  // namespace sw
