#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "model/config.hpp"
#include "tests/model/refused.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelConfig llama_with(const std::string& keys) {
  return config_from_json(R"({"model_type": "llama", "max_position_embeddings": 131072)" +
                              (keys.empty() ? "" : ", " + keys) + "}",
                          "config.json");
}

// Case C070.
TEST(RopeConfig, EverySpellingOfNoScalingIsTheSame) {
  const ModelConfig plain = llama_with("");
  EXPECT_EQ(plain.rope.theta, 10000);
  EXPECT_EQ(plain.rope.scaling, "");
  EXPECT_EQ(llama_with(R"("rope_theta": 10000)"), plain);
  EXPECT_EQ(llama_with(R"("rope_theta": 10000.0, "rope_scaling": null)"), plain);
  EXPECT_EQ(llama_with(R"("rope_scaling": {"rope_type": "default"})"), plain);
  EXPECT_EQ(llama_with(R"("rope_parameters": {"rope_theta": 10000, "rope_type": "default"})"),
            plain);
  EXPECT_EQ(llama_with(R"("rope_parameters": {"rope_theta": 10000.0})"), plain);
  EXPECT_EQ(llama_with(R"("rope_parameters": {})"), plain);
}

TEST(RopeConfig, EverySpellingOfLinearIsTheSame) {
  const ModelConfig linear =
      llama_with(R"("rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 2})");
  EXPECT_EQ(linear.rope.theta, 500000);
  EXPECT_EQ(linear.rope.scaling, "linear");
  EXPECT_EQ(linear.rope.factor, 2);
  EXPECT_EQ(llama_with(R"("rope_theta": 5e5,
                          "rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.0})"),
            linear);
  EXPECT_EQ(llama_with(R"("rope_parameters":
                          {"rope_theta": 500000, "rope_type": "linear", "factor": 2})"),
            linear);
  EXPECT_EQ(llama_with(R"("rope_parameters": {"full_attention":
                          {"rope_theta": 500000, "rope_type": "linear", "factor": 2}})"),
            linear);
}

TEST(RopeConfig, Llama3TakesItsFourNumbers) {
  const std::string numbers = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0)";
  const ModelConfig config =
      llama_with(R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" + numbers +
                 R"(, "original_max_position_embeddings": 8192})");
  const kernels::RopeParameters expected{500000, "llama3", 8, 1, 4, 8192};
  EXPECT_EQ(config.rope, expected);
  // Beside the scaling instead of inside; and, as in the library, the model's own length if
  // nowhere.
  EXPECT_EQ(llama_with(R"("rope_theta": 500000, "original_max_position_embeddings": 8192,
                          "rope_scaling": {"rope_type": "llama3", )" +
                       numbers + "}"),
            config);
  EXPECT_EQ(llama_with(R"("rope_scaling": {"rope_type": "llama3", )" + numbers + "}")
                .rope.original_length,
            131072);
}

TEST(RopeConfig, WhatIsNotSupportedIsRefusedWithItsValue) {
  const auto refused = [](const std::string& keys) {
    return refusal<ConfigError>([&] { (void)llama_with(keys); });
  };
  EXPECT_THAT(refused(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})"),
              AllOf(HasSubstr("rope_scaling: rope_type = \"yarn\""), HasSubstr("linear, llama3")));
  EXPECT_THAT(refused(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})"),
              HasSubstr("type = \"dynamic\""));
  EXPECT_THAT(refused(R"("rope_scaling": {"type": "spiral"})"), HasSubstr("\"spiral\""));
  EXPECT_THAT(refused(R"("rope_scaling": {"factor": 2})"), HasSubstr("no rope_type"));
  EXPECT_THAT(refused(R"("rope_scaling": {"rope_type": "linear"})"),
              HasSubstr("factor is missing"));
  EXPECT_THAT(refused(R"("rope_scaling": {"rope_type": "linear", "factor": 2, "beta_fast": 32})"),
              HasSubstr("beta_fast = 32"));
  EXPECT_THAT(refused(R"("rope_scaling": {"rope_type": "linear", "type": "llama3", "factor": 2})"),
              HasSubstr("contradicts"));
  EXPECT_THAT(refused(R"("rope_scaling": "linear")"), HasSubstr("\"linear\""));
  EXPECT_THAT(refused(R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5})"),
              AllOf(HasSubstr("rope_theta = 10000.0"), HasSubstr("contradicts")));
  EXPECT_THAT(refused(R"("rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5,
                         "rope_type": "default"})"),
              HasSubstr("partial_rotary_factor = 0.5"));
  EXPECT_THAT(refused(R"("rope_parameters": {"full_attention": {"rope_theta": 1e4},
                         "sliding_attention": {"rope_theta": 1e6}})"),
              HasSubstr("layer type"));
  EXPECT_THAT(refused(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                         "low_freq_factor": 4.0, "high_freq_factor": 1.0})"),
              AllOf(HasSubstr("high_freq_factor = 1.0"), HasSubstr("low_freq_factor = 4")));
}

}  // namespace
}  // namespace sw
