#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/parameters.hpp"
#include "model/weights.hpp"

namespace sw {

/// A tensor of a fixture's file, whatever its type was.
struct FixtureTensor {
  Shape shape;
  std::vector<double> values;
  [[nodiscard]] std::vector<std::int32_t> integers() const;
};
using FixtureTensors = std::map<std::string, FixtureTensor>;

/// A folder that tools/reference/make_model_fixtures.py made with the `transformers` library.
struct Fixture {
  ModelConfig config;
  FixtureTensors weights;   ///< model.safetensors
  FixtureTensors expected;  ///< expected.safetensors
  [[nodiscard]] std::vector<StoredTensor> stored() const;
};

[[nodiscard]] Fixture read_fixture(const std::string& name);

/// A parameter's elements out of the tensors that hold them, whose names there begin with `prefix`.
[[nodiscard]] std::vector<double> elements_of(const ParameterSpec& spec,
                                              const FixtureTensors& tensors,
                                              const std::string& prefix = "");

/// Largest |a - b| over the larger of the largest |b| and `floor`.
[[nodiscard]] double relative_error(const std::vector<double>& a, const std::vector<double>& b,
                                    double floor = 0);

}  // namespace sw
