#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "checkpoint/safetensors.hpp"
#include "train/generate.hpp"
#include "train/session.hpp"

/// The whole engine in float32 against values that PyTorch and the transformers library gave
/// (tools/reference made them).
namespace sw {
namespace {

const std::filesystem::path kFixtures =
    std::filesystem::path(SW_SOURCE_DIR) / "tests/fixtures/model";

class LogitsOfTheTransformersLibrary : public ::testing::TestWithParam<const char*> {};

TEST_P(LogitsOfTheTransformersLibrary, AreReproducedInFloat32) {
  const std::filesystem::path folder = kFixtures / GetParam();
  const LoadedModel model = load_model(folder);
  const SafetensorsReader expected(folder / "expected.safetensors");
  const TensorView& tokens = expected.tensors().at("tokens");
  const TensorView& logits = expected.tensors().at("logits");
  const std::int64_t rows = tokens.shape.at(0);
  const std::int64_t length = tokens.shape.at(1);
  Generator generator(model.config, length, model.read);
  const auto* ids = reinterpret_cast<const std::int32_t*>(tokens.bytes.data());
  const auto* reference = reinterpret_cast<const float*>(logits.bytes.data());
  double largest = 0;
  double worst = 0;
  // A packed row holds the logits of its documents, each as if it stood alone.
  const auto* documents =
      reinterpret_cast<const std::int32_t*>(expected.tensors().at("documents").bytes.data());
  const std::int64_t vocabulary = logits.shape.at(2);
  for (std::int64_t begin = 0, end = 0; begin < rows * length; begin = end) {
    while (end < rows * length && end / length == begin / length &&
           documents[end] == documents[begin]) {
      ++end;
    }
    const std::vector<float> found =
        generator.logits(std::span(ids + begin, static_cast<std::size_t>(end - begin)));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double wanted = reference[static_cast<std::size_t>(begin * vocabulary) + i];
      largest = std::max(largest, std::abs(wanted));
      worst = std::max(worst, std::abs(found[i] - wanted));
    }
  }
  EXPECT_LT(worst / largest, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Folders, LogitsOfTheTransformersLibrary,
                         ::testing::Values("llama-grouped", "llama-head-dim", "llama-rope-llama3",
                                           "llama-rope-linear", "gpt2", "qwen2", "mistral-window",
                                           "mixtral", "qwen2-moe", "qwen3-moe"),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::erase(name, '-');
                           return name;
                         });

/// 20 steps of torch.optim.AdamW, learning rate 1e-3 constant, with and without clipping: loss
/// within 1e-5 relative at every step.
class TrainingOfPyTorch : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingOfPyTorch, IsReproducedStepByStep) {
  const std::filesystem::path folder = kFixtures / GetParam();
  const Json training =
      parse_json(read_whole_file(folder / "training.json", 1 << 20), "training.json");
  const auto rows = training.at("rows").get<std::vector<std::vector<std::vector<std::int32_t>>>>();
  CompileOptions options;
  ModelOptions model;
  model.path = folder.string();
  options.model = model_config(model);
  options.parallel.zero = 0;
  options.optimizer.weight_decay = training.at("weight_decay");
  options.micro_batch = static_cast<std::int64_t>(rows.front().size());
  options.sequence = static_cast<std::int64_t>(rows.front().front().size()) - 1;
  for (const Json& variant : training.at("variants")) {
    const Compilation compilation(options);
    const auto worlds = make_local_worlds(1, {});
    Session session(compilation, *worlds.front());
    session.load_model_folder(folder);
    const auto losses = variant.at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), 20U);
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const auto read = [&](std::int64_t sample, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> labels, std::span<std::int32_t> positions,
                            std::span<std::int32_t> documents) {
        const std::vector<std::int32_t>& row = rows[step][static_cast<std::size_t>(sample)];
        std::copy(row.begin(), row.end() - 1, tokens.begin());
        std::copy(row.begin() + 1, row.end(), labels.begin());
        for (std::size_t i = 0; i < positions.size(); ++i) {
          positions[i] = static_cast<std::int32_t>(i);
          documents[i] = 0;
        }
      };
      Window window;
      for (std::int64_t i = 0; i < options.micro_batch; ++i) {
        window.samples.push_back(i);
      }
      const StepResult result =
          session.step(read, window,
                       {training.at("learning_rate"), variant.at("gradient_clip"),
                        static_cast<std::int64_t>(step) + 1, 0, 0});
      EXPECT_NEAR(result.loss / losses[step], 1, 1e-5)
          << "step " << step << ", clip " << variant.at("gradient_clip");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingOfPyTorch,
                         ::testing::Values("training", "training-mixtral"), [](const auto& folder) {
                           std::string name = folder.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace sw
