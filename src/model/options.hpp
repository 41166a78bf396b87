#pragma once

#include <string>

namespace sw {

/// [model] of a run file: exactly one of the first three is set.
struct ModelOptions {
  std::string preset;  ///< "llama-tiny", …
  std::string path;    ///< a Hugging Face model folder
  std::string config;  ///< [model.config]: the JSON text of a Hugging Face config.json
  /// Of the balance loss of a model with experts; 0: none.
  double balance_loss = 0;
  friend bool operator==(const ModelOptions&, const ModelOptions&) = default;
};

}  // namespace sw
