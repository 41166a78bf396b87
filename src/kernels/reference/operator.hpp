#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kernel.hpp"

/// How a reference is written: read doubles, compute a plain vector, write it out.
namespace sw::kernels::reference {

struct Operator {
  std::string_view name;
  void (*run)(const KernelCall& call);
};

/// The operators of one file each.
[[nodiscard]] std::vector<Operator> einsum_operators();
[[nodiscard]] std::vector<Operator> elementwise_operators();
[[nodiscard]] std::vector<Operator> norm_operators();
[[nodiscard]] std::vector<Operator> rope_operators();
[[nodiscard]] std::vector<Operator> attention_operators();
[[nodiscard]] std::vector<Operator> embedding_operators();
[[nodiscard]] std::vector<Operator> loss_operators();
[[nodiscard]] std::vector<Operator> expert_operators();
[[nodiscard]] std::vector<Operator> balance_operators();

/// Input `index` as float64; throws InternalError when it has another type.
[[nodiscard]] const double* doubles(const KernelCall& call, std::size_t index);
[[nodiscard]] const std::int32_t* integers(const KernelCall& call, std::size_t index);
[[nodiscard]] const std::int64_t* long_integers(const KernelCall& call, std::size_t index);
[[nodiscard]] const Shape& shape_of(const KernelCall& call, std::size_t input);
/// Product of all dims but the last, and the last.
struct Rows {
  std::int64_t count = 0;
  std::int64_t width = 0;
};
[[nodiscard]] Rows rows_of(const Shape& shape);
/// Writes a result to output `index`, or adds it where the call accumulates. Writing last makes
/// every reference safe in place.
void write(const KernelCall& call, std::size_t index, const std::vector<double>& values);
void write_integers(const KernelCall& call, std::size_t index,
                    const std::vector<std::int32_t>& values);
/// Likewise, or adds.
void write_long_integers(const KernelCall& call, std::size_t index,
                         const std::vector<std::int64_t>& values);

}  // namespace sw::kernels::reference
