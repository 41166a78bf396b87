#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel.hpp"

namespace sw::kernels::testing {

/// Numbers with a shape, kept in double (floating) or as integers, from which a call's memory of
/// any type is made.
struct Tensor {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::Float64;  ///< Float64 stands for "floating": float32 or bfloat16 in kernels
  /// A statistic or a logit: float32 in kernels even where activations are bfloat16.
  bool always_float32 = false;
};

/// Standard normal numbers, rounded to bfloat16 so that every floating type holds them exactly.
[[nodiscard]] Tensor normals(Shape shape, std::uint64_t stream, double scale = 1);
[[nodiscard]] Tensor integers(Shape shape, std::vector<std::int64_t> values);
[[nodiscard]] Tensor long_integers(Shape shape, std::vector<std::int64_t> values);
[[nodiscard]] Tensor zeros(Shape shape);
[[nodiscard]] Tensor float32(Tensor tensor);
/// 0, 1, 2, … in every row of [B, S].
[[nodiscard]] Tensor counted_positions(std::int64_t batch, std::int64_t sequence);

/// The bytes of a tensor in a type.
[[nodiscard]] std::vector<std::byte> stored(const Tensor& tensor, DType dtype);
/// The numbers that bytes of a type hold.
[[nodiscard]] std::vector<double> loaded(const std::vector<std::byte>& bytes, DType dtype);

/// Owns the memory of one call.
class OwnedCall {
 public:
  /// Floating inputs are stored as `input` and outputs as `output`, except float32-only ones.
  OwnedCall(std::string op, Parameters parameters, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs, DType input, DType output);

  KernelCall call;
  [[nodiscard]] std::vector<double> output(std::size_t index) const;
  [[nodiscard]] const std::vector<std::byte>& output_bytes(std::size_t index) const {
    return output_memory_.at(index);
  }
  void run_cpu(int threads);

 private:
  std::vector<std::vector<std::byte>> input_memory_;
  std::vector<std::vector<std::byte>> output_memory_;
};

}  // namespace sw::kernels::testing
