#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/files.hpp"
#include "checkpoint/model_folder.hpp"
#include "checkpoint/pieces.hpp"
#include "checkpoint/reader.hpp"
#include "model/config.hpp"
#include "model/weights.hpp"

/// Parameters in and out of Hugging Face folders, and between those and checkpoints.
namespace sw {

/// The state whose tensors are the parameters, in float32 or the type they train in.
inline constexpr std::string_view kWeightState = "weight";
/// Where TrainingState::extra holds the model's config.json, as an object.
inline constexpr std::string_view kModelConfigKey = "model_config";
/// And the step of its routers' biases, if they have any: no config.json says that.
inline constexpr std::string_view kBalanceBiasKey = "balance_bias";

/// The parameters of a model in a folder, mapped.
class ModelWeights {
 public:
  /// DataError, listing all names, unless the tensors are exactly this model's: see match_weights.
  /// A tied head that the folder holds all the same must equal the embedding. `note` hears of
  /// leftovers that are ignored.
  ModelWeights(const ModelConfig& config, const std::filesystem::path& folder,
               const std::function<void(const std::string&)>& note);

  /// The elements of a piece of a parameter, whatever type the folder stores.
  void read(std::string_view parameter, const PieceRange& range, std::span<float> values) const;

  /// In the order of the forward.
  [[nodiscard]] const std::vector<ParameterSpec>& parameters() const { return match_.parameters; }

 private:
  void check_tied_copies() const;

  ModelFolder folder_;
  WeightMatch match_;
  std::map<std::string, const ParameterSpec*, std::less<>> by_name_;
};

/// The model that a checkpoint was trained as; DataError when it does not say.
[[nodiscard]] ModelConfig model_config_of(const CheckpointReader& checkpoint);

/// Writes the weights of a checkpoint as a Hugging Face folder, one tensor in memory at a time.
/// `stored` is the type of the elements written.
void export_model(Files& files, const CheckpointReader& checkpoint, DType stored,
                  const std::filesystem::path& folder);

/// Writes the weights of a Hugging Face folder as the checkpoint `folder`/step-000000: float32, no
/// optimizer state. Returns its path.
std::filesystem::path import_model(Files& files, const ModelConfig& config,
                                   const std::filesystem::path& model_folder,
                                   const std::filesystem::path& folder,
                                   const std::function<void(const std::string&)>& note);

}  // namespace sw
