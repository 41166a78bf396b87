#include "kernels/dropout.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// y[i] = x[i] or 0, scaled, for elements from `first` of the whole tensor on.
void mask_chunk(const DropoutMask& mask, std::int64_t first, float factor, const float* x, float* y,
                std::int64_t count) {
  std::int64_t i = 0;
  while (i < count) {
    const std::int64_t element = first + i;
    const auto words = mask.block(element / 4);
    for (std::int64_t word = element % 4; word < 4 && i < count; ++word, ++i) {
      y[i] = mask.keeps_word(words[static_cast<std::size_t>(word)]) ? x[i] * factor : 0.0F;
    }
  }
}

/// The gradient is the same product with the mask.
Prepared prepare_dropout(const KernelCall& call, Scratch&, int) {
  check_views(call, 2, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  SW_CHECK(call.inputs[1].dtype == DType::Int64, "dropout reads its key as int64 and got {}",
           to_text(call.inputs[1].dtype));
  const auto& parameters = std::get<DropoutParameters>(call.parameters);
  SW_CHECK(parameters.rate >= 0 && parameters.rate < 1, "a dropout rate of {}", parameters.rate);
  const auto [rows, width] = rows_of(call.inputs[0].shape);
  return [call, rows, width, parameters](Team& team) {
    const View& x = call.inputs[0];
    const View& y = call.outputs[0];
    const auto* key = reinterpret_cast<const std::int64_t*>(call.inputs[1].data);
    const DropoutMask mask(parameters, key[0], key[1]);
    const auto factor = static_cast<float>(1 / (1 - parameters.rate));
    const std::int64_t tile_rows = rows_per_tile(width);
    for_tiles(team, tiles_of(rows, tile_rows), [&](std::int64_t tile, int) {
      float in[kChunk];
      float out[kChunk];
      for (std::int64_t row = tile * tile_rows; row < std::min(rows, (tile + 1) * tile_rows);
           ++row) {
        const std::int64_t whole = whole_index_of_row(parameters, x.shape, row);
        for (std::int64_t column = 0; column < width; column += kChunk) {
          const std::int64_t count = std::min(kChunk, width - column);
          const std::int64_t first = row * width + column;
          mask_chunk(mask, whole + column, factor, read(x, first, count, in), target(y, first, out),
                     count);
          finish(y, first, count, out);
        }
      }
    });
  };
}

}  // namespace

std::vector<Operator> dropout_operators() {
  return {{"dropout", prepare_dropout}, {"dropout_grad", prepare_dropout}};
}

}  // namespace sw::kernels::cpu
