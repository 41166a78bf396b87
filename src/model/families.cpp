#include "model/families.hpp"

#include <fmt/ranges.h>

#include <string>

#include "base/error.hpp"

namespace sw {

const std::vector<FamilyDefinition>& families() {
  static const std::vector<FamilyDefinition> kFamilies = {
      {"llama", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"mistral", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"qwen2", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"mixtral", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"qwen2_moe", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"qwen3_moe", Family::Llama, llama::read, llama::write, llama::parameters, llama::forward},
      {"gpt2", Family::Gpt2, gpt2::read, gpt2::write, gpt2::parameters, gpt2::forward},
  };
  return kFamilies;
}

const FamilyDefinition& family_of(std::string_view model_type, std::string_view where) {
  std::vector<std::string_view> known;
  for (const FamilyDefinition& family : families()) {
    if (family.model_type == model_type) {
      return family;
    }
    known.push_back(family.model_type);
  }
  throw ConfigError(
      fmt::format("{}: model_type = \"{}\" is not in this version; those that are: {}", where,
                  model_type, fmt::join(known, ", ")));
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  return family_of(config.model_type, "model").parameters(config);
}

}  // namespace sw
