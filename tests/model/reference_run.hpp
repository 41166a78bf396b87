#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.hpp"

namespace sw {

/// Carries out a graph op by op with the double-precision reference: the slow way to know what a
/// model computes. Floating values are float64, ids stay int32.
class ReferenceRun {
 public:
  explicit ReferenceRun(const Graph& graph);

  void set(ValueId id, std::span<const double> values);
  void set(ValueId id, std::span<const std::int32_t> values);
  void set(ValueId id, std::span<const std::int64_t> values);
  /// Every op, in order.
  void run();
  [[nodiscard]] std::vector<double> values(ValueId id) const;
  /// The sum of the contributions to a parameter's gradient.
  [[nodiscard]] std::vector<double> gradient(ValueId parameter) const;

 private:
  void copy(ValueId id, DType dtype, std::span<const std::byte> bytes);
  void run(const Op& op);

  const Graph& graph_;
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace sw
