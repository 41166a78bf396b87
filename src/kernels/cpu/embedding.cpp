#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

Prepared prepare_embedding(const KernelCall& call, Scratch&, int) {
  check_views(call, 2, 1);
  const auto [rows, width] = rows_of(call.inputs[1].shape);
  const std::int64_t count = elements(call.inputs[0].shape);
  SW_CHECK(elements(call.outputs[0].shape) == count * width, "an embedding {} of {} ids of {}",
           to_text(call.outputs[0].shape), count, width);
  const std::int64_t start = std::get<VocabularyParameters>(call.parameters).start;
  return [call, rows, width, count, start](Team& team) {
    const std::int32_t* ids = integers(call.inputs[0]);
    const std::int64_t tile_ids = rows_per_tile(width);
    for_tiles(team, tiles_of(count, tile_ids), [&](std::int64_t tile, int) {
      for (std::int64_t i = tile * tile_ids; i < std::min(count, (tile + 1) * tile_ids); ++i) {
        const std::int64_t row = ids[i] - start;
        if (row >= 0 && row < rows) {
          copy_row(call.inputs[1], row * width, call.outputs[0], i * width, width);
        } else {
          fill_zero(call.outputs[0], i * width, width);
        }
      }
    });
  };
}

struct EmbeddingGrad {
  const std::int32_t* ids;
  View dy;
  View dw;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t count;
  std::int64_t start;
  bool add;
  std::int32_t* order;  ///< the tokens of this rank's rows, sorted by row, then by place
  float* sums;          ///< a row per thread

  [[nodiscard]] std::int64_t row_of(std::int32_t token) const { return ids[token] - start; }

  /// Sorts without allocation; returns how many tokens have a row here.
  [[nodiscard]] std::int64_t sort_tokens() const {
    std::int64_t found = 0;
    for (std::int32_t token = 0; token < count; ++token) {
      if (row_of(token) >= 0 && row_of(token) < rows) order[found++] = token;
    }
    std::sort(order, order + found, [this](std::int32_t a, std::int32_t b) {
      return row_of(a) != row_of(b) ? row_of(a) < row_of(b) : a < b;
    });
    return found;
  }

  /// Adds up the tokens of one row, in their order, in float32, and rounds once. Returns the end of
  /// the run that begins at `begin`.
  std::int64_t sum_run(std::int64_t begin, std::int64_t found, int thread) const {
    const std::int64_t row = row_of(order[begin]);
    float* sum = sums + thread * width;
    std::fill_n(sum, width, 0.0F);
    std::int64_t i = begin;
    for (; i < found && row_of(order[i]) == row; ++i) {
      float buffer[kChunk];
      for (std::int64_t column = 0; column < width; column += kChunk) {
        const std::int64_t part = std::min(kChunk, width - column);
        const float* from = read(dy, order[i] * width + column, part, buffer);
        simd::add(sum + column, from, sum + column, part);
      }
    }
    store(dw, row * width, width, sum, add);
    return i;
  }
};

/// Each row of the table belongs to the tile in which its first token stands, so no two threads
/// write one row and the order of additions is that of the tokens.
Prepared prepare_embedding_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  const auto [rows, width] = rows_of(call.outputs[0].shape);
  const std::int64_t count = elements(call.inputs[0].shape);
  SW_CHECK(elements(call.inputs[2].shape) == count * width,
           "an embedding gradient {} for {} ids and rows of {}", to_text(call.inputs[2].shape),
           count, width);
  const EmbeddingGrad grad{
      .ids = integers(call.inputs[0]),
      .dy = call.inputs[2],
      .dw = call.outputs[0],
      .rows = rows,
      .width = width,
      .count = count,
      .start = std::get<VocabularyParameters>(call.parameters).start,
      .add = accumulates(call, 0),
      .order = scratch.take<std::int32_t>(count),
      .sums = scratch.take<float>(threads * width),
  };
  return [grad](Team& team) {
    constexpr std::int64_t kTokens = 64;
    if (!grad.add) {
      const std::int64_t tile_rows = rows_per_tile(grad.width);
      for_tiles(team, tiles_of(grad.rows, tile_rows), [&](std::int64_t tile, int) {
        const std::int64_t first = tile * tile_rows;
        fill_zero(grad.dw, first * grad.width, std::min(tile_rows, grad.rows - first) * grad.width);
      });
    }
    const std::int64_t found = grad.sort_tokens();
    for_tiles(team, tiles_of(found, kTokens), [&](std::int64_t tile, int thread) {
      const std::int64_t end = std::min(found, (tile + 1) * kTokens);
      std::int64_t i = tile * kTokens;
      while (i < end) {
        const bool starts = i == 0 || grad.row_of(grad.order[i]) != grad.row_of(grad.order[i - 1]);
        i = starts ? grad.sum_run(i, found, thread) : i + 1;
      }
    });
  };
}

}  // namespace

std::vector<Operator> embedding_operators() {
  return {{"embedding", prepare_embedding}, {"embedding_grad", prepare_embedding_grad}};
}

}  // namespace sw::kernels::cpu
