#pragma once

#include <string>

namespace sw {

/// [model] of a run file: exactly one of the three is set.
struct ModelOptions {
  std::string preset;  ///< "llama-tiny", …
  std::string path;    ///< a Hugging Face model folder
  std::string config;  ///< [model.config]: the JSON text of a Hugging Face config.json
  friend bool operator==(const ModelOptions&, const ModelOptions&) = default;
};

}  // namespace sw
