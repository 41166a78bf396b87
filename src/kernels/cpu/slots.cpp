#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// body(row) over rows of `width` elements, some per tile.
template <typename Body>
void for_slots(Team& team, std::int64_t count, std::int64_t width, const Body& body) {
  const std::int64_t tile_rows = rows_per_tile(width);
  for_tiles(team, tiles_of(count, tile_rows), [&](std::int64_t tile, int) {
    const std::int64_t end = std::min(count, (tile + 1) * tile_rows);
    for (std::int64_t row = tile * tile_rows; row < end; ++row) body(row);
  });
}

/// body(first, count) over chunks of a row that begins at `first`.
template <typename Body>
void for_parts(std::int64_t first, std::int64_t width, const Body& body) {
  for (std::int64_t column = 0; column < width; column += kChunk) {
    body(first + column, std::min(kChunk, width - column));
  }
}

/// Slots of a token in y [B,S,k,D], of which x is [B,S,D].
std::int64_t check_slots(const KernelCall& call, const View& x, const View& y) {
  SW_CHECK(y.shape.size() >= 2 && elements(x.shape) > 0 &&
               elements(y.shape) == elements(x.shape) * y.shape[y.shape.size() - 2] &&
               x.shape.back() == y.shape.back(),
           "{}: slots {} of {}", call.op, to_text(y.shape), to_text(x.shape));
  return y.shape[y.shape.size() - 2];
}

Prepared prepare_dispatch(const KernelCall& call, Scratch&, int) {
  check_views(call, 1, 1);
  const std::int64_t chosen = check_slots(call, call.inputs[0], call.outputs[0]);
  const auto [tokens, width] = rows_of(call.inputs[0].shape);
  return [x = call.inputs[0], y = call.outputs[0], chosen, tokens, width](Team& team) {
    for_slots(team, tokens * chosen, width, [&](std::int64_t slot) {
      copy_row(x, slot / chosen * width, y, slot * width, width);
    });
  };
}

Prepared prepare_combine(const KernelCall& call, Scratch&, int) {
  check_views(call, 1, 1);
  const std::int64_t chosen = check_slots(call, call.outputs[0], call.inputs[0]);
  const auto [tokens, width] = rows_of(call.outputs[0].shape);
  return [y = call.inputs[0], x = call.outputs[0], chosen, tokens, width](Team& team) {
    for_slots(team, tokens, width, [&](std::int64_t token) {
      for_parts(0, width, [&](std::int64_t column, std::int64_t count) {
        float buffer[kChunk];
        float sum[kChunk];
        const float* left = read(y, token * chosen * width + column, count, sum);
        for (std::int64_t slot = 1; slot < chosen; ++slot) {
          const std::int64_t first = (token * chosen + slot) * width + column;
          simd::add(left, read(y, first, count, buffer), sum, count);
          left = sum;
        }
        store(x, token * width + column, count, left, false);
      });
    });
  };
}

float value_at(const View& view, std::int64_t index) {
  float value;
  return *read(view, index, 1, &value);
}

void check_scale(const KernelCall& call, const View& x, const View& scale) {
  SW_CHECK(elements(scale.shape) == rows_of(x.shape).count, "{}: rows of {} by {}", call.op,
           to_text(x.shape), to_text(scale.shape));
}

Prepared prepare_scale_rows(const KernelCall& call, Scratch&, int) {
  check_views(call, 2, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  check_scale(call, call.inputs[0], call.inputs[1]);
  return [x = call.inputs[0], scale = call.inputs[1], y = call.outputs[0]](Team& team) {
    const auto [rows, width] = rows_of(x.shape);
    for_slots(team, rows, width, [&, width = width](std::int64_t row) {
      const float factor = value_at(scale, row);
      for_parts(row * width, width, [&](std::int64_t first, std::int64_t count) {
        float in[kChunk];
        float out[kChunk];
        simd::scale(read(x, first, count, in), factor, target(y, first, out), count);
        finish(y, first, count, out);
      });
    });
  };
}

Prepared prepare_scale_rows_grad(const KernelCall& call, Scratch&, int) {
  check_views(call, 3, 2);
  for (const std::size_t i : {0, 2}) check_same_shape(call, call.inputs[i], call.outputs[0]);
  check_same_shape(call, call.inputs[1], call.outputs[1]);
  check_scale(call, call.inputs[0], call.inputs[1]);
  return [call](Team& team) {
    const auto [rows, width] = rows_of(call.inputs[0].shape);
    for_slots(team, rows, width, [&, width = width](std::int64_t row) {
      const float factor = value_at(call.inputs[1], row);
      float sum = 0;
      for_parts(row * width, width, [&](std::int64_t first, std::int64_t count) {
        float in[2][kChunk];
        float out[kChunk];
        const float* x = read(call.inputs[0], first, count, in[0]);
        const float* dy = read(call.inputs[2], first, count, in[1]);
        sum += simd::dot(x, dy, count);
        const View& dx = call.outputs[0];
        simd::scale(dy, factor, target(dx, first, out), count);
        finish(dx, first, count, out);
      });
      store(call.outputs[1], row, 1, &sum, false);
    });
  };
}

}  // namespace

std::vector<Operator> slot_operators() {
  return {{"dispatch", prepare_dispatch},
          {"combine", prepare_combine},
          {"scale_rows", prepare_scale_rows},
          {"scale_rows_grad", prepare_scale_rows_grad}};
}

}  // namespace sw::kernels::cpu
