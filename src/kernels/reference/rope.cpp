#include "kernels/rope.hpp"

#include <cmath>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

/// Turns the pairs of input `x_index` by +angle or -angle: the gradient of a rotation is its
/// inverse.
void turn(const KernelCall& call, std::size_t x_index, std::size_t positions_index, double sign) {
  const Shape& shape = call.outputs.at(0).shape;  // [B, S, H, K]
  const double* x = doubles(call, x_index);
  const std::int32_t* positions = integers(call, positions_index);
  const std::int64_t heads = shape.at(2);
  const std::int64_t size = shape.at(3);
  const auto frequencies = rope_frequencies(std::get<RopeParameters>(call.parameters), size);
  std::vector<double> y(static_cast<std::size_t>(elements(shape)));
  for (std::int64_t row = 0; row < shape[0] * shape[1] * heads; ++row) {
    for (std::int64_t pair = 0; pair < size / 2; ++pair) {
      const std::int32_t position = positions[row / heads];
      const double angle = position * frequencies[pair];
      const double cosine = std::cos(angle);
      const double sine = sign * std::sin(angle);
      const std::int64_t first = row * size + pair;
      const std::int64_t second = first + size / 2;
      y[first] = x[first] * cosine - x[second] * sine;
      y[second] = x[second] * cosine + x[first] * sine;
    }
  }
  write(call, 0, y);
}

}  // namespace

std::vector<Operator> rope_operators() {
  return {{"rope", [](const KernelCall& call) { turn(call, 0, 1, 1); }},
          {"rope_grad", [](const KernelCall& call) { turn(call, 1, 0, -1); }}};
}

}  // namespace sw::kernels::reference
