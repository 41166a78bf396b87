#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

Prepared prepare_bias_add(const KernelCall& call, Scratch&, int) {
  check_views(call, 2, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const auto [rows, width] = rows_of(call.inputs[0].shape);
  SW_CHECK(elements(call.inputs[1].shape) == width, "a bias {} for rows of {}",
           to_text(call.inputs[1].shape), width);
  return [call, rows, width](Team& team) {
    const View& y = call.outputs[0];
    const std::int64_t tile_rows = rows_per_tile(width);
    for_tiles(team, tiles_of(rows, tile_rows), [&](std::int64_t tile, int) {
      const std::int64_t end = std::min(rows, (tile + 1) * tile_rows);
      float in[2][kChunk];
      float out[kChunk];
      for (std::int64_t column = 0; column < width; column += kChunk) {
        const std::int64_t count = std::min(kChunk, width - column);
        const float* bias = read(call.inputs[1], column, count, in[0]);
        for (std::int64_t row = tile * tile_rows; row < end; ++row) {
          const std::int64_t first = row * width + column;
          simd::add(read(call.inputs[0], first, count, in[1]), bias, target(y, first, out), count);
          finish(y, first, count, out);
        }
      }
    });
  };
}

/// Sums over rows. Blocks of rows, read as they lie, are added up on their own first, so that
/// rounding grows with the length of a block and the number of blocks, not with their product.
Prepared prepare_bias_add_grad(const KernelCall& call, Scratch& scratch, int) {
  check_views(call, 1, 1);
  const auto [rows, width] = rows_of(call.inputs[0].shape);
  SW_CHECK(elements(call.outputs[0].shape) == width, "a bias gradient {} for rows of {}",
           to_text(call.outputs[0].shape), width);
  constexpr std::int64_t kBlock = 64;
  const std::int64_t blocks = tiles_of(rows, kBlock);
  auto* sums = scratch.take<float>(blocks * width);
  return [call, rows, width, blocks, sums](Team& team) {
    for_tiles(team, blocks, [&](std::int64_t block, int) {
      float* sum = sums + block * width;
      std::fill_n(sum, width, 0.0F);
      for (std::int64_t row = block * kBlock; row < std::min(rows, (block + 1) * kBlock); ++row) {
        for (std::int64_t column = 0; column < width; column += kChunk) {
          const std::int64_t count = std::min(kChunk, width - column);
          float buffer[kChunk];
          const float* dy = read(call.inputs[0], row * width + column, count, buffer);
          simd::add(sum + column, dy, sum + column, count);
        }
      }
    });
    for_tiles(team, tiles_of(width, kChunk), [&](std::int64_t tile, int) {
      const std::int64_t column = tile * kChunk;
      const std::int64_t count = std::min(kChunk, width - column);
      float total[kChunk] = {};
      for (std::int64_t block = 0; block < blocks; ++block) {
        simd::add(total, sums + block * width + column, total, count);
      }
      store(call.outputs[0], column, count, total, accumulates(call, 0));
    });
  };
}

}  // namespace

std::vector<Operator> bias_operators() {
  return {{"bias_add", prepare_bias_add}, {"bias_add_grad", prepare_bias_add_grad}};
}

}  // namespace sw::kernels::cpu
