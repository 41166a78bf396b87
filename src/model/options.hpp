#pragma once

#include <string>

namespace sw {

/// [model] of a run file: exactly one of the first three is set.
struct ModelOptions {
  std::string preset;  ///< "llama-tiny", …
  std::string path;    ///< a Hugging Face model folder
  std::string config;  ///< [model.config]: the JSON text of a Hugging Face config.json
  /// Coefficients of what a model with experts adds to the loss; 0: nothing.
  double balance_loss = 0;
  double z_loss = 0;
  double expert_capacity = 0;  ///< slots that an expert takes, in even loads; 0: all that come
  double balance_bias = 0;     ///< step of the biases with which its routers choose; 0: no biases
  friend bool operator==(const ModelOptions&, const ModelOptions&) = default;
};

}  // namespace sw
