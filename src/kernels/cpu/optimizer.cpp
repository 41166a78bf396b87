#include "kernels/cpu/simd/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels {
namespace {

constexpr std::int64_t kTile = 16384;

/// Writes the bfloat16 copy of what was just updated, while it is in cache.
void round(const float* master, BFloat16* rounded, std::int64_t begin, std::int64_t end) {
  if (rounded != nullptr) {
    simd::float_to_bfloat16(master + begin, rounded + begin, end - begin);
  }
}

/// Runs body(gradients as float32, begin, end) over elements [begin, end), part by part where
/// gradients have to be widened.
template <typename Body>
void with_floats(const Gradients& gradients, std::int64_t begin, std::int64_t end,
                 const Body& body) {
  if (gradients.dtype == DType::Float32) {
    body(reinterpret_cast<const float*>(gradients.data) + begin, begin, end);
    return;
  }
  const auto* values = reinterpret_cast<const BFloat16*>(gradients.data);
  float buffer[cpu::kChunk];
  for (std::int64_t first = begin; first < end; first += cpu::kChunk) {
    const std::int64_t last = std::min(end, first + cpu::kChunk);
    simd::bfloat16_to_float(values + first, buffer, last - first);
    body(buffer, first, last);
  }
}

}  // namespace

void adamw(Team& team, const AdamwStep& step, const AdamwScalars& scalars) {
  const auto update = static_cast<double>(scalars.update);
  const double correction1 = 1 - std::pow(static_cast<double>(scalars.beta1), update);
  const double correction2 = 1 - std::pow(static_cast<double>(scalars.beta2), update);
  const auto rate = static_cast<double>(scalars.learning_rate);
  const simd::AdamwFactors factors{
      .corrected_rate = static_cast<float>(rate / correction1),
      .inverse_root = static_cast<float>(1 / std::sqrt(correction2)),
      .keep = static_cast<float>(1 - rate * static_cast<double>(step.weight_decay))};
  cpu::for_tiles(team, cpu::tiles_of(step.count, kTile), [&](std::int64_t tile, int) {
    const std::int64_t begin = tile * kTile;
    const std::int64_t end = std::min(step.count, begin + kTile);
    with_floats(step.gradient, begin, end,
                [&](const float* values, std::int64_t first, std::int64_t last) {
                  simd::adamw(step, values, scalars, factors, first, last);
                });
    round(step.master, step.rounded, begin, end);
  });
}

void sgd(Team& team, const SgdStep& step, float learning_rate, float momentum, float gradient_scale,
         std::int64_t update) {
  const simd::SgdFactors factors{.learning_rate = learning_rate,
                                 .momentum = momentum,
                                 .gradient_scale = gradient_scale,
                                 .first = update <= 1};
  cpu::for_tiles(team, cpu::tiles_of(step.count, kTile), [&](std::int64_t tile, int) {
    const std::int64_t begin = tile * kTile;
    const std::int64_t end = std::min(step.count, begin + kTile);
    with_floats(step.gradient, begin, end,
                [&](const float* values, std::int64_t first, std::int64_t last) {
                  simd::sgd(step, values, factors, first, last);
                });
    round(step.master, step.rounded, begin, end);
  });
}

void add_squares(Team& team, const Gradients& gradients, std::int64_t count, ExactSum& sum) {
  constexpr std::int64_t kBlock = 1024;
  static_assert(cpu::kChunk % kBlock == 0, "a block must not straddle two parts");
  std::mutex mutex;  // the order in which tiles are added changes no word
  cpu::for_tiles(team, cpu::tiles_of(count, 64 * kBlock), [&](std::int64_t tile, int) {
    ExactSum part;
    const std::int64_t end = std::min(count, (tile + 1) * 64 * kBlock);
    with_floats(gradients, tile * 64 * kBlock, end,
                [&](const float* values, std::int64_t first, std::int64_t last) {
                  for (std::int64_t begin = first; begin < last; begin += kBlock) {
                    part.add(simd::sum_of_squares(values + (begin - first),
                                                  std::min(kBlock, last - begin)));
                  }
                });
    const std::lock_guard lock(mutex);
    sum.add(part);
  });
}

}  // namespace sw::kernels
