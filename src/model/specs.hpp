#pragma once

#include <string>
#include <vector>

#include "model/parameters.hpp"

namespace sw {

/// Collects the specs of one model, in order. A weight's memory is the Hugging Face tensor's; its
/// dims are finer.
class Specs {
 public:
  explicit Specs(const ModelConfig& config) : config_(config) {}

  /// Specs from here on belong to this layer (-1: to the ends).
  void set_layer(int layer) { layer_ = layer; }

  /// Starts from a normal distribution of deviation initializer_range x `scale`; decays.
  void matrix(const std::string& name, Shape shape, std::string letters, const Shape& tensor_shape,
              double scale = 1);
  /// A norm's factors, which start from 1: [D], or those of each head's [K].
  void norm(const std::string& name);
  void head_norm(const std::string& name);
  /// A bias, of a projection or a norm, which starts from 0.
  void bias(const std::string& name, Shape shape, std::string letters);
  /// Part `index` of `parts` side by side in the last dim of the tensor that the last spec's name
  /// (less its ".q", ".k" or ".v") stands for.
  void fuse(std::string tensor, std::int64_t index, std::int64_t parts);
  /// The folder keeps the last spec as a tensor per index of its first dim: these.
  void split_experts(const std::vector<std::string>& tensors);

  [[nodiscard]] std::vector<ParameterSpec> take() { return std::move(specs_); }

 private:
  void add(const std::string& name, Shape shape, std::string letters, const Shape& tensor_shape,
           bool decay, Initialization initial);

  const ModelConfig& config_;
  int layer_ = -1;
  std::vector<ParameterSpec> specs_;
};

}  // namespace sw
