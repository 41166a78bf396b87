#pragma once

#include <string_view>
#include <vector>

namespace sw {

/// How many operands a kernel takes, as kernels/kernel.hpp lists them.
struct OperandCounts {
  std::string_view op;
  int least_inputs = 0;
  int most_inputs = 0;
  int outputs = 1;
  /// outputs[0] may be the memory of an input.
  bool in_place = false;
};
[[nodiscard]] const std::vector<OperandCounts>& operand_counts();
/// Null for an unknown operator.
[[nodiscard]] const OperandCounts* find_operand_counts(std::string_view op);

}  // namespace sw
