#include "checkpoint/model_weights.hpp"

#include <gmock/gmock.h>

#include "checkpoint/commands.hpp"
#include "checkpoint/elements.hpp"
#include "tests/checkpoint/saving.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::data_error_of;
using sw::testing::element_indices;
using sw::testing::names_in;
using sw::testing::read_file;
using sw::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kLlama = R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 16, "tie_word_embeddings": true})";
constexpr auto kGpt2 = R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_layer": 2,
  "n_head": 2, "n_positions": 16})";

constexpr auto kMixtral = R"({"model_type": "mixtral", "vocab_size": 11, "hidden_size": 8,
  "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 16, "num_local_experts": 3})";
constexpr auto kQwen = R"({"model_type": "qwen2_moe", "vocab_size": 11, "hidden_size": 8,
  "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 16, "num_experts": 5,
  "moe_intermediate_size": 4, "shared_expert_intermediate_size": 10, "mlp_only_layers": [0]})";

/// A value that names its tensor and place, and that bfloat16 holds exactly.
float value_of(std::size_t tensor, std::int64_t index) {
  return static_cast<float>(tensor % 7) + static_cast<float>(index % 32) / 32.0F;
}

class ModelWeightsTest : public sw::testing::ScratchTest {
 protected:
  /// A folder as another program writes it, with further tensors of one element.
  void write_model(const char* config, DType dtype, const std::vector<std::string>& extra = {}) {
    const ModelConfig model = config_from_json(config, "config.json");
    std::vector<TensorDeclaration> declared;
    for (const StoredTensor& tensor : stored_tensors(model)) {
      declared.push_back({tensor.name, dtype, tensor.shape});
    }
    for (const std::string& name : extra) {
      declared.push_back({name, dtype, {1}});
    }
    ModelFolderWriter writer(real_files(), folder_ / "model", config, declared);
    for (std::size_t i = 0; i < declared.size(); ++i) {
      const std::int64_t count = elements(declared[i].shape);
      std::vector<float> values;
      for (std::int64_t index = 0; index < count; ++index) {
        values.push_back(value_of(i, index));
      }
      std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(dtype)));
      from_float32(values, dtype, bytes);
      writer.write(declared[i].name, bytes);
    }
    writer.finish();
  }
  ModelWeights open(const char* config) {
    return {config_from_json(config, "config.json"), folder_ / "model",
            [this](const std::string& note) { notes_.push_back(note); }};
  }

  std::vector<std::string> notes_;
};

TEST_F(ModelWeightsTest, APieceOfAParameterIsThoseElementsOfItsStoredTensor) {
  for (const char* config : {kLlama, kGpt2, kMixtral, kQwen}) {
    fs::remove_all(folder_ / "model");
    write_model(config, DType::BFloat16);
    const ModelWeights weights = open(config);
    const auto stored = stored_tensors(config_from_json(config, "config.json"));
    for (const ParameterSpec& spec : weights.parameters()) {
      // What each element of the parameter is, one by one.
      std::vector<float> expected;
      for (const StoredPart& part : spec.stored) {
        const auto tensor = std::ranges::find(stored, part.tensor, &StoredTensor::name);
        const auto number = static_cast<std::size_t>(tensor - stored.begin());
        for (const std::int64_t place :
             element_indices(part.tensor_shape, {part.box, {0, box_elements({part.box, {}})}})) {
          expected.push_back(value_of(number, place));
        }
      }
      PieceRange half = whole_range(spec.shape);
      half.box.back() = split(spec.shape.back(), 2, 1);
      half.elements = {1, box_elements(half)};
      std::vector<float> values(static_cast<std::size_t>(half.elements.size()));
      weights.read(spec.name, half, values);
      const auto indices = element_indices(spec.shape, half);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], expected.at(static_cast<std::size_t>(indices[i])))
            << spec.name << ", element " << indices[i];
      }
    }
  }
}

TEST_F(ModelWeightsTest, LeftoversAreIgnoredWithANoteAndUnknownTensorsAreRefused) {
  write_model(kLlama, DType::Float32, {"model.layers.0.self_attn.rotary_emb.inv_freq"});
  (void)open(kLlama);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("rotary_emb.inv_freq' is ignored")));
  fs::remove_all(folder_ / "model");
  write_model(kLlama, DType::Float32, {"model.layers.0.extra.weight"});
  EXPECT_THAT(data_error_of([&] { (void)open(kLlama); }), HasSubstr("model.layers.0.extra.weight"));
}

TEST_F(ModelWeightsTest, FromFolderToCheckpointToFolderKeepsEveryBit) {
  for (const char* config : {kLlama, kGpt2, kMixtral, kQwen}) {
    fs::remove_all(folder_ / "model");
    fs::remove_all(folder_ / "checkpoints");
    fs::remove_all(folder_ / "back");
    write_model(config, DType::BFloat16);
    (void)convert_path(real_files(), folder_ / "model", folder_ / "checkpoints");
    (void)convert_path(real_files(), folder_ / "checkpoints", folder_ / "back", DType::BFloat16);
    EXPECT_EQ(read_file(folder_ / "model" / "model.safetensors"),
              read_file(folder_ / "back" / "model.safetensors"));
    EXPECT_EQ(config_from_json(read_file(folder_ / "back" / "config.json"), "back"),
              config_from_json(config, "config.json"));
  }
}

TEST_F(ModelWeightsTest, AHeadThatIsSaidToBeTiedAndDiffersIsRefused) {
  const ModelConfig model = config_from_json(kLlama, "config.json");
  std::vector<TensorDeclaration> declared;
  for (const StoredTensor& tensor : stored_tensors(model)) {
    declared.push_back({tensor.name, DType::Float32, tensor.shape});
  }
  declared.push_back({"lm_head.weight", DType::Float32, {11, 8}});
  for (const int head : {0, 1}) {
    fs::remove_all(folder_ / "model");
    ModelFolderWriter writer(real_files(), folder_ / "model", kLlama, declared);
    for (const TensorDeclaration& tensor : declared) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(elements(tensor.shape)) * 4);
      bytes.back() = std::byte{tensor.name == "lm_head.weight" ? static_cast<unsigned char>(head)
                                                               : static_cast<unsigned char>(0)};
      writer.write(tensor.name, bytes);
    }
    writer.finish();
    EXPECT_THAT(data_error_of([&] { (void)open(kLlama); }),
                HasSubstr(head == 0 ? "no error" : "ties 'lm_head.weight' to"));
  }
}

TEST_F(ModelWeightsTest, ACheckpointOfAnotherModelThanItNamesIsNotExported) {
  write_model(kLlama, DType::Float32);
  (void)convert_path(real_files(), folder_ / "model", folder_ / "checkpoints");
  const CheckpointReader reader(folder_ / "checkpoints" / "step-000000");
  TrainingState state = reader.state();
  state.extra["model_config"]["num_hidden_layers"] = 3;
  std::vector<sw::testing::OwnedPiece> pieces;
  for (const StateTensor& tensor : reader.tensors()) {
    const PieceRange all = whole_range(tensor.shape);
    pieces.push_back(
        {tensor, all, std::vector<std::byte>(static_cast<std::size_t>(all.elements.end) * 4)});
  }
  sw::testing::save_once(real_files(), {.folder = folder_ / "other", .run = "r", .session = "s"},
                         state, {pieces});
  EXPECT_THAT(
      data_error_of([&] { (void)convert_path(real_files(), folder_ / "other", folder_ / "out"); }),
      HasSubstr("model.layers.2"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace
}  // namespace sw
