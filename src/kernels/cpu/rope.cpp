#include "kernels/rope.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// The gradient turns back: sign -1.
Prepared prepare_turn(const KernelCall& call, const View& x, const View& positions, float sign,
                      Scratch& scratch, int threads) {
  const View y = call.outputs.at(0);
  check_same_shape(call, x, y);
  SW_CHECK(x.shape.size() == 4 && positions.shape == Shape({x.shape[0], x.shape[1]}),
           "{} of {} with positions {}", call.op, to_text(x.shape), to_text(positions.shape));
  const std::int64_t heads = x.shape[2];
  const std::int64_t size = x.shape[3];
  const std::int64_t half = size / 2;
  const std::int64_t rows = x.shape[0] * x.shape[1];
  const std::int64_t padded = round_up(size, 16);
  // Per thread: cosines and sines together, a head read, a head written.
  float* space = scratch.take<float>(3 * padded * threads);
  const auto frequencies = rope_frequencies(std::get<RopeParameters>(call.parameters), size);
  return [=](Team& team) {
    const std::int32_t* position = integers(positions);
    const std::int64_t tile_rows = rows_per_tile(heads * size);
    for_tiles(team, tiles_of(rows, tile_rows), [&](std::int64_t tile, int thread) {
      float* cosine = space + 3 * padded * thread;
      float* sine = cosine + half;
      float* in = cosine + padded;
      float* out = in + padded;
      for (std::int64_t row = tile * tile_rows; row < std::min(rows, (tile + 1) * tile_rows);
           ++row) {
        simd::cosine_sine(position[row], frequencies.data(), cosine, sine, half);
        simd::scale(sine, sign, sine, half);
        for (std::int64_t head = 0; head < heads; ++head) {
          const std::int64_t first = (row * heads + head) * size;
          const float* from = read(x, first, size, in);
          float* to = target(y, first, out);
          simd::rotate(from, from + half, cosine, sine, to, to + half, half);
          finish(y, first, size, out);
        }
      }
    });
  };
}

Prepared prepare_rope(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 2, 1);
  return prepare_turn(call, call.inputs[0], call.inputs[1], 1.0F, scratch, threads);
}

Prepared prepare_rope_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 2, 1);
  return prepare_turn(call, call.inputs[1], call.inputs[0], -1.0F, scratch, threads);
}

}  // namespace

std::vector<Operator> rope_operators() {
  return {{"rope", prepare_rope}, {"rope_grad", prepare_rope_grad}};
}

}  // namespace sw::kernels::cpu
