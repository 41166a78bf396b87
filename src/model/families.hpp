#pragma once

#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/config_reader.hpp"
#include "model/forward.hpp"
#include "model/parameters.hpp"

/// What a family of models brings. To add one: a file with these four functions and its lines in
/// the list (families.cpp).
namespace sw {

struct FamilyDefinition {
  std::string_view model_type;  ///< of config.json
  Family family;
  /// Fills everything but family and model_type.
  void (*read)(ConfigReader& reader, ModelConfig& config);
  void (*write)(const ModelConfig& config, Json& json);
  std::vector<ParameterSpec> (*parameters)(const ModelConfig& config);
  /// From the inputs to the logits.
  ValueId (*forward)(Forward& forward);
};

[[nodiscard]] const std::vector<FamilyDefinition>& families();
/// Throws ConfigError naming `where` and the types that are known.
[[nodiscard]] const FamilyDefinition& family_of(std::string_view model_type,
                                                std::string_view where);

namespace llama {
void read(ConfigReader& reader, ModelConfig& config);
void write(const ModelConfig& config, Json& json);
[[nodiscard]] std::vector<ParameterSpec> parameters(const ModelConfig& config);
[[nodiscard]] ValueId forward(Forward& forward);
}  // namespace llama

namespace gpt2 {
void read(ConfigReader& reader, ModelConfig& config);
void write(const ModelConfig& config, Json& json);
[[nodiscard]] std::vector<ParameterSpec> parameters(const ModelConfig& config);
[[nodiscard]] ValueId forward(Forward& forward);
}  // namespace gpt2

}  // namespace sw
