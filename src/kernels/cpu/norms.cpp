#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// Rows whose weight gradients are added up in one partial sum: fixed, so that threads change no
/// bit.
constexpr std::int64_t kBlockRows = 64;

enum class Kind { Rms, Layer };

/// What a row is normalized with: (x - mean) * factor.
struct Statistics {
  float mean = 0;
  float factor = 0;
};

Statistics statistics(Kind kind, const float* x, std::int64_t width, double epsilon) {
  const auto count = static_cast<double>(width);
  const float mean = kind == Kind::Rms
                         ? 0.0F
                         : static_cast<float>(static_cast<double>(simd::sum(x, width)) / count);
  const double variance = static_cast<double>(simd::squared_deviation(x, mean, width)) / count;
  return {mean, static_cast<float>(1 / std::sqrt(variance + epsilon))};
}

/// The sizes of a call and its per-thread rows in float32.
struct Norm {
  Norm(Kind norm_kind, const KernelCall& norm_call, Scratch& scratch, int threads,
       std::int64_t buffers_per_thread)
      : kind(norm_kind),
        call(norm_call),
        epsilon(std::get<NormParameters>(norm_call.parameters).epsilon),
        rows(rows_of(norm_call.inputs.at(0).shape).count),
        width(rows_of(norm_call.inputs.at(0).shape).width),
        buffers(buffers_per_thread),
        padded(round_up(width, 16)),
        weight(scratch.take<float>(2 * padded)),
        space(scratch.take<float>(threads * buffers_per_thread * padded)) {
    check_same_shape(call, call.inputs[0], call.outputs[0]);
    for (std::size_t i = 1; i < (kind == Kind::Rms ? 2U : 3U); ++i) {
      SW_CHECK(elements(call.inputs[i].shape) == width, "{}: a weight {} for rows of {}", call.op,
               to_text(call.inputs[i].shape), width);
    }
  }

  [[nodiscard]] float* buffer(int thread, std::int64_t index) const {
    return space + (thread * buffers + index) * padded;
  }

  Kind kind;
  KernelCall call;
  double epsilon;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t buffers;
  std::int64_t padded;
  float* weight;  ///< w and b in float32, when they are stored otherwise
  float* space;
};

Prepared prepare_norm(Kind kind, const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, kind == Kind::Rms ? 2 : 3, 1);
  return [norm = Norm(kind, call, scratch, threads, 2)](Team& team) {
    const std::int64_t width = norm.width;
    const View& y = norm.call.outputs[0];
    const float* w = read(norm.call.inputs[1], 0, width, norm.weight);
    const float* b = norm.kind == Kind::Rms
                         ? nullptr
                         : read(norm.call.inputs[2], 0, width, norm.weight + norm.padded);
    for_tiles(team, tiles_of(norm.rows, kBlockRows), [&](std::int64_t tile, int thread) {
      float* in = norm.buffer(thread, 0);
      float* out = norm.buffer(thread, 1);
      for (std::int64_t row = tile * kBlockRows; row < std::min(norm.rows, (tile + 1) * kBlockRows);
           ++row) {
        const float* x = read(norm.call.inputs[0], row * width, width, in);
        const auto [mean, factor] = statistics(norm.kind, x, width, norm.epsilon);
        simd::normalize(x, mean, factor, w, b, target(y, row * width, out), width);
        finish(y, row * width, width, out);
      }
    });
  };
}

/// One block of rows: dx, and the block's part of dw (and db) in `partial`.
void norm_grad_block(const Norm& norm, std::int64_t block, int thread, const float* w,
                     float* partial) {
  const std::int64_t width = norm.width;
  const View& dy_view = norm.call.inputs[norm.kind == Kind::Rms ? 2 : 3];
  const View& dx_view = norm.call.outputs[0];
  float* dw = partial;
  float* db = norm.kind == Kind::Rms ? nullptr : partial + norm.padded;
  std::fill_n(partial, norm.kind == Kind::Rms ? norm.padded : 2 * norm.padded, 0.0F);
  float* out = norm.buffer(thread, 2);
  for (std::int64_t row = block * kBlockRows; row < std::min(norm.rows, (block + 1) * kBlockRows);
       ++row) {
    const float* x = read(norm.call.inputs[0], row * width, width, norm.buffer(thread, 0));
    const float* dy = read(dy_view, row * width, width, norm.buffer(thread, 1));
    const auto [mean, factor] = statistics(norm.kind, x, width, norm.epsilon);
    const auto sums = simd::norm_sums(x, dy, w, mean, factor, width);
    const auto count = static_cast<float>(width);
    simd::norm_grad({.x = x,
                     .dy = dy,
                     .w = w,
                     .mean = mean,
                     .factor = factor,
                     .mean_g = norm.kind == Kind::Rms ? 0.0F : sums.g / count,
                     .mean_g_n = sums.g_n / count},
                    target(dx_view, row * width, out), dw, db, width);
    finish(dx_view, row * width, width, out);
  }
}

/// Adds the partial sums of output `output` (1: dw, 2: db) in block order.
void add_partials(Team& team, const Norm& norm, float* partials, std::size_t output) {
  constexpr std::int64_t kStrip = 128;
  const std::int64_t parts = norm.kind == Kind::Rms ? 1 : 2;
  const std::int64_t blocks = tiles_of(norm.rows, kBlockRows);
  for_tiles(team, tiles_of(norm.width, kStrip), [&](std::int64_t tile, int) {
    const std::int64_t column = tile * kStrip;
    const std::int64_t count = std::min(kStrip, norm.width - column);
    float total[kStrip] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t row = block * parts + static_cast<std::int64_t>(output) - 1;
      simd::add(total, partials + row * norm.padded + column, total, count);
    }
    store(norm.call.outputs[output], column, count, total, accumulates(norm.call, output));
  });
}

Prepared prepare_norm_grad(Kind kind, const KernelCall& call, Scratch& scratch, int threads) {
  const std::int64_t parts = kind == Kind::Rms ? 1 : 2;
  check_views(call, kind == Kind::Rms ? 3 : 4, static_cast<std::size_t>(1 + parts));
  const Norm norm(kind, call, scratch, threads, 3);
  const std::int64_t blocks = tiles_of(norm.rows, kBlockRows);
  float* partials = scratch.take<float>(blocks * parts * norm.padded);
  return [norm, parts, blocks, partials](Team& team) {
    const float* w = read(norm.call.inputs[1], 0, norm.width, norm.weight);
    for_tiles(team, blocks, [&](std::int64_t block, int thread) {
      norm_grad_block(norm, block, thread, w, partials + block * parts * norm.padded);
    });
    for (std::int64_t part = 1; part <= parts; ++part) {
      add_partials(team, norm, partials, static_cast<std::size_t>(part));
    }
  };
}

Prepared prepare_rms_norm(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_norm(Kind::Rms, call, scratch, threads);
}
Prepared prepare_layer_norm(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_norm(Kind::Layer, call, scratch, threads);
}
Prepared prepare_rms_norm_grad(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_norm_grad(Kind::Rms, call, scratch, threads);
}
Prepared prepare_layer_norm_grad(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_norm_grad(Kind::Layer, call, scratch, threads);
}

}  // namespace

std::vector<Operator> norm_operators() {
  return {{"rms_norm", prepare_rms_norm},
          {"rms_norm_grad", prepare_rms_norm_grad},
          {"layer_norm", prepare_layer_norm},
          {"layer_norm_grad", prepare_layer_norm_grad}};
}

}  // namespace sw::kernels::cpu
