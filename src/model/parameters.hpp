#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.hpp"
#include "model/config.hpp"

/// The parameters of a model as data: what they are called, how they are cut, what they start from
/// and where a Hugging Face folder keeps them. The graph, the initialization and the files are all
/// made from this one list.
namespace sw {

/// What a parameter starts from.
struct Initialization {
  double mean = 0;
  double deviation = 0;  ///< of a normal distribution; 0: every element is `mean`
  friend bool operator==(const Initialization&, const Initialization&) = default;
};

/// A tensor of a Hugging Face folder, or part of one, that holds elements of a parameter: those of
/// `box`, row by row. Nothing is transposed.
struct StoredPart {
  std::string tensor;
  Shape tensor_shape;
  std::vector<Range> box;  ///< per dim of the tensor
  friend bool operator==(const StoredPart&, const StoredPart&) = default;
};

struct ParameterSpec {
  /// As in a Hugging Face folder. GPT-2's fused c_attn is three parameters: its name and ".q",
  /// ".k", ".v". A weight of all experts is one parameter: its name there without the numbers.
  std::string name;
  Shape shape;
  std::string letters;  ///< see Value::letters
  int layer = -1;       ///< -1: at the model's ends
  bool decay = true;    ///< matrices and embeddings; not norms and biases
  Initialization initial;
  /// Their elements, one part after another, are the parameter's elements in order. Experts: a
  /// tensor each; else one part.
  std::vector<StoredPart> stored;
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

/// In the order of the forward. A tied head has no spec of its own.
[[nodiscard]] std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

/// Writes the initial values of elements [elements.begin, elements.end) of the parameter: a pure
/// function of seed, name and index in the whole parameter, so that any rank makes any piece.
void initialize(const ParameterSpec& spec, std::uint64_t seed, Range elements,
                std::span<float> values);

/// The same for elements `of_box`, flat and row major, of a box of the parameter (a range per dim).
void initialize(const ParameterSpec& spec, std::uint64_t seed, const std::vector<Range>& box,
                Range of_box, std::span<float> values);

/// Calls `row` with the ranges of flat indices that make up a box of a tensor, ascending: each as
/// long as memory allows, none empty.
void for_each_row(const Shape& shape, const std::vector<Range>& box,
                  const std::function<void(Range)>& row);

}  // namespace sw
