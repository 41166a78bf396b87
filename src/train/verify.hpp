#pragma once

#include <filesystem>
#include <string>

#include "train/compare.hpp"
#include "train/run_options.hpp"

/// The command `verify`: a run file's layout held to a reference.
namespace sw {

struct VerifyRequest {
  RunOptions layout;
  RunOptions reference;  ///< another layout of the same window: the same samples, the same number
                         ///< of micro-batches
  std::filesystem::path base;  ///< what relative patterns are relative to
  std::int64_t steps = 1;
  std::string dump;  ///< a folder for both sides' gradients and weights (safetensors); empty: none
};

/// Both layouts from the same state (the initial weights, or the model folder's) on the first
/// windows of the run.
[[nodiscard]] Comparison verify_layout(const VerifyRequest& request);

/// `steps` steps and one more, against the same with a checkpoint saved and loaded before the last
/// one, in new ranks. Equal only if bit-identical.
[[nodiscard]] Comparison verify_resume(const VerifyRequest& request);

}  // namespace sw
