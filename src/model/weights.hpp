#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.hpp"
#include "model/parameters.hpp"

/// Which tensor of a Hugging Face model folder holds which parameter. Only names and shapes: the
/// bytes are read and written by the floors above.
namespace sw {

/// A tensor of a model folder.
struct StoredTensor {
  std::string name;
  Shape shape;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

/// The tensors that a folder of this model holds, each once, in the order in which parameters need
/// them. A tied head is not among them.
[[nodiscard]] std::vector<StoredTensor> stored_tensors(const ModelConfig& config);

/// A tensor that must equal a parameter: the head that some folders hold although it is tied.
struct TiedCopy {
  std::string tensor;
  std::string parameter;
  friend bool operator==(const TiedCopy&, const TiedCopy&) = default;
};

struct WeightMatch {
  /// As `parameter_specs`, each with the tensor's name as this folder spells it. Every parameter is
  /// filled exactly once.
  std::vector<ParameterSpec> parameters;
  std::vector<TiedCopy> tied_copies;  ///< the reader refuses the folder when they differ
  std::vector<std::string> ignored;   ///< leftovers without a meaning, for a note
};

/// Finds every parameter among the tensors of a folder. Names may lack the model's prefix
/// ("transformer.", "model."), as folders of the bare base model do. Throws DataError naming
/// `where` and listing every tensor that is missing, unknown, or of another shape.
[[nodiscard]] WeightMatch match_weights(const ModelConfig& config,
                                        const std::vector<StoredTensor>& found,
                                        std::string_view where);

/// How many elements of a parameter a part holds.
[[nodiscard]] std::int64_t stored_elements(const StoredPart& part);

/// Elements [tensor, tensor + count) of a stored tensor are elements [parameter, parameter + count)
/// of a parameter.
struct StoredRun {
  std::size_t part = 0;  ///< of the parameter's stored parts: names the tensor
  std::int64_t tensor = 0;
  std::int64_t parameter = 0;
  std::int64_t count = 0;
};

/// Calls `run` for the runs that make up elements `range` of a parameter, ascending.
void for_each_run(const std::vector<StoredPart>& stored, Range range,
                  const std::function<void(const StoredRun&)>& run);

}  // namespace sw
