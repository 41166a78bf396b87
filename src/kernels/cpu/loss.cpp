#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// body(row) over all rows of the logits.
template <typename Body>
void for_rows(Team& team, const Rows& rows, const Body& body) {
  const std::int64_t tile_rows = rows_per_tile(rows.width);
  for_tiles(team, tiles_of(rows.count, tile_rows), [&](std::int64_t tile, int) {
    const std::int64_t end = std::min(rows.count, (tile + 1) * tile_rows);
    for (std::int64_t row = tile * tile_rows; row < end; ++row) body(row);
  });
}

/// Sizes of logits [..., V], with one statistic per row in output 0.
Rows check_rows(const KernelCall& call, std::size_t inputs) {
  check_views(call, inputs, 1);
  const Rows rows = rows_of(call.inputs[0].shape);
  SW_CHECK(rows.width > 0 && elements(call.outputs[0].shape) == rows.count, "{} of {} into {}",
           call.op, to_text(call.inputs[0].shape), to_text(call.outputs[0].shape));
  return rows;
}

Prepared prepare_row_max(const KernelCall& call, Scratch&, int) {
  const Rows rows = check_rows(call, 1);
  return [rows, logits = floats(call.inputs[0]), result = floats(call.outputs[0])](Team& team) {
    for_rows(team, rows, [&](std::int64_t row) {
      result[row] = simd::maximum(logits + row * rows.width, rows.width);
    });
  };
}

Prepared prepare_sum_exp(const KernelCall& call, Scratch&, int) {
  const Rows rows = check_rows(call, 2);
  return [rows, logits = floats(call.inputs[0]), most = floats(call.inputs[1]),
          result = floats(call.outputs[0])](Team& team) {
    for_rows(team, rows, [&](std::int64_t row) {
      result[row] = static_cast<float>(
          simd::sum_of_exponentials(logits + row * rows.width, most[row], rows.width));
    });
  };
}

Prepared prepare_pick(const KernelCall& call, Scratch&, int) {
  const Rows rows = check_rows(call, 2);
  const std::int64_t start = std::get<VocabularyParameters>(call.parameters).start;
  return [rows, start, logits = floats(call.inputs[0]), labels = integers(call.inputs[1]),
          result = floats(call.outputs[0])](Team&) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const std::int64_t column = labels[row] - start;
      const bool here = labels[row] >= 0 && column >= 0 && column < rows.width;
      result[row] = here ? logits[row * rows.width + column] : 0.0F;
    }
  };
}

Prepared prepare_token_loss(const KernelCall& call, Scratch&, int) {
  check_views(call, 4, 1);
  const std::int64_t count = elements(call.outputs[0].shape);
  for (const View& view : call.inputs) check_same_shape(call, view, call.outputs[0]);
  return [count, most = floats(call.inputs[0]), sum = floats(call.inputs[1]),
          picked = floats(call.inputs[2]), labels = integers(call.inputs[3]),
          result = floats(call.outputs[0])](Team&) {
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = labels[i] < 0 ? 0.0F : std::log(sum[i]) + (most[i] - picked[i]);
    }
  };
}

Prepared prepare_loss_sum(const KernelCall& call, Scratch&, int) {
  check_views(call, 2, 1);
  const std::int64_t count = elements(call.inputs[0].shape);
  return [count, add = accumulates(call, 0), losses = floats(call.inputs[0]),
          tokens = floats(call.inputs[1]), result = floats(call.outputs[0])](Team&) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(losses[i]);
    const double mean = sum / static_cast<double>(*tokens);
    *result = static_cast<float>(add ? static_cast<double>(*result) + mean : mean);
  };
}

struct LossGrad {
  Rows rows;
  std::int64_t start;
  const float* logits;
  const float* most;
  const float* sum;
  const std::int32_t* labels;
  const float* count;
  View result;

  void run_row(std::int64_t row) const {
    const std::int64_t first = row * rows.width;
    if (labels[row] < 0) return fill_zero(result, first, rows.width);
    const float factor = 1.0F / (sum[row] * *count);
    const std::int64_t label = labels[row] - start;
    for (std::int64_t column = 0; column < rows.width; column += kChunk) {
      const std::int64_t part = std::min(kChunk, rows.width - column);
      float buffer[kChunk];
      float* out = target(result, first + column, buffer);
      simd::exponentials(logits + first + column, most[row], factor, out, part);
      if (label >= column && label < column + part) out[label - column] -= 1.0F / *count;
      finish(result, first + column, part, buffer);
    }
  }
};

Prepared prepare_loss_grad(const KernelCall& call, Scratch&, int) {
  check_views(call, 5, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const LossGrad grad{.rows = rows_of(call.inputs[0].shape),
                      .start = std::get<VocabularyParameters>(call.parameters).start,
                      .logits = floats(call.inputs[0]),
                      .most = floats(call.inputs[1]),
                      .sum = floats(call.inputs[2]),
                      .labels = integers(call.inputs[3]),
                      .count = floats(call.inputs[4]),
                      .result = call.outputs[0]};
  return [grad](Team& team) {
    for_rows(team, grad.rows, [&](std::int64_t row) { grad.run_row(row); });
  };
}

}  // namespace

std::vector<Operator> loss_operators() {
  return {{"row_max", prepare_row_max},   {"sum_exp", prepare_sum_exp},
          {"pick", prepare_pick},         {"token_loss", prepare_token_loss},
          {"loss_sum", prepare_loss_sum}, {"loss_grad", prepare_loss_grad}};
}

}  // namespace sw::kernels::cpu
