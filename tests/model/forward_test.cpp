#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/model.hpp"
#include "tests/model/fixture.hpp"
#include "tests/model/reference_run.hpp"

namespace sw {
namespace {

/// The contract of a model folder. The library rounds its norms and rotary tables to float32 (2^-24
/// each), so that a few of them meet; everything else is float64 on both sides.
constexpr double kBound = 1e-5;

/// A fixture's model with its inputs and weights in place.
struct Loaded {
  ModelGraph model;
  std::vector<ParameterSpec> specs;
  ReferenceRun run;

  explicit Loaded(const Fixture& fixture)
      : model(with_backward(fixture)),
        specs(match_weights(fixture.config, fixture.stored(), "fixture").parameters),
        run(model.graph) {
    run.set(model.tokens, fixture.expected.at("tokens").integers());
    run.set(model.labels, fixture.expected.at("labels").integers());
    run.set(model.positions, fixture.expected.at("positions").integers());
    run.set(model.documents, fixture.expected.at("documents").integers());
    const std::vector<std::int32_t> labels = fixture.expected.at("labels").integers();
    const auto valid = std::count_if(labels.begin(), labels.end(), [](int l) { return l >= 0; });
    run.set(model.count, std::vector<double>{static_cast<double>(valid)});
    const std::vector<ValueId> parameters = model.graph.parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      run.set(parameters.at(i), elements_of(specs[i], fixture.weights));
    }
  }

  static ModelGraph with_backward(const Fixture& fixture) {
    const Shape& shape = fixture.expected.at("tokens").shape;
    ModelGraph model = build(fixture.config, shape.at(0), shape.at(1), DType::Float32);
    differentiate(model);
    return model;
  }
};

class AgainstTransformers : public testing::TestWithParam<const char*> {};

TEST_P(AgainstTransformers, LogitsLossAndEveryGradientAgree) {
  const Fixture fixture = read_fixture(GetParam());
  Loaded loaded(fixture);
  loaded.run.run();
  EXPECT_LE(
      relative_error(loaded.run.values(loaded.model.logits), fixture.expected.at("logits").values),
      kBound);
  EXPECT_LE(
      relative_error(loaded.run.values(loaded.model.loss), fixture.expected.at("loss").values),
      kBound);
  double largest = 0;
  for (const auto& [name, tensor] : fixture.expected) {
    if (name.starts_with("gradient.")) {
      for (const double value : tensor.values) {
        largest = std::max(largest, std::abs(value));
      }
    }
  }
  const std::vector<ValueId> parameters = loaded.model.graph.parameters();
  for (std::size_t i = 0; i < loaded.specs.size(); ++i) {
    const std::vector<double> expected =
        elements_of(loaded.specs[i], fixture.expected, "gradient.");
    // A key bias has no gradient in exact arithmetic: what is left of it is noise.
    EXPECT_LE(relative_error(loaded.run.gradient(parameters.at(i)), expected, 1e-3 * largest),
              kBound)
        << loaded.specs[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers,
                         testing::Values("llama-grouped", "llama-head-dim", "llama-rope-llama3",
                                         "llama-rope-linear", "mistral-window", "qwen2", "gpt2",
                                         "mixtral", "qwen2-moe", "qwen3-moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Case C006. Row 1 holds documents of 5 and 8 tokens.
TEST(Forward, ATokenOfOneDocumentChangesNoBitOfTheNext) {
  const Fixture fixture = read_fixture("llama-grouped");
  Loaded loaded(fixture);
  loaded.run.run();
  const std::vector<double> before = loaded.run.values(loaded.model.logits);
  std::vector<std::int32_t> tokens = fixture.expected.at("tokens").integers();
  constexpr std::int64_t kRow = 13;
  tokens.at(kRow + 1) = (tokens.at(kRow + 1) + 1) % 29;
  loaded.run.set(loaded.model.tokens, tokens);
  loaded.run.run();
  const std::vector<double> after = loaded.run.values(loaded.model.logits);
  const auto of_position = [&](const std::vector<double>& logits, std::int64_t position) {
    const auto begin = logits.begin() + (kRow + position) * fixture.config.vocabulary;
    return std::vector<double>(begin, begin + fixture.config.vocabulary);
  };
  EXPECT_EQ(of_position(before, 0), of_position(after, 0));
  for (std::int64_t position = 1; position < 5; ++position) {
    EXPECT_NE(of_position(before, position), of_position(after, position)) << position;
  }
  for (std::int64_t position = 5; position < kRow; ++position) {
    EXPECT_EQ(of_position(before, position), of_position(after, position)) << position;
  }
}

}  // namespace
}  // namespace sw
