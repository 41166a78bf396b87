#include "kernels/cpu/simd/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// body(first, count) over chunks of at most kChunk elements, a few chunks per tile.
template <typename Body>
void for_chunks(Team& team, std::int64_t count, const Body& body) {
  constexpr std::int64_t kTile = 16 * kChunk;
  for_tiles(team, tiles_of(count, kTile), [&](std::int64_t tile, int) {
    const std::int64_t end = std::min(count, (tile + 1) * kTile);
    for (std::int64_t first = tile * kTile; first < end; first += kChunk) {
      body(first, std::min(kChunk, end - first));
    }
  });
}

void check_all_same_shape(const KernelCall& call) {
  for (const View& view : call.inputs) check_same_shape(call, view, call.outputs[0]);
  for (const View& view : call.outputs) check_same_shape(call, view, call.outputs[0]);
}

Prepared prepare_add(const KernelCall& call, Scratch&, int) {
  SW_CHECK(call.inputs.size() >= 2, "add takes two or more inputs and got {}", call.inputs.size());
  check_views(call, call.inputs.size(), 1);
  check_all_same_shape(call);
  return [call](Team& team) {
    const View& y = call.outputs[0];
    for_chunks(team, elements(y.shape), [&](std::int64_t first, std::int64_t count) {
      float buffer[2][kChunk];
      float sum[kChunk];
      // The sum may be the memory of any input, so it goes there last.
      const float* left = read(call.inputs[0], first, count, buffer[0]);
      for (std::size_t i = 1; i < call.inputs.size(); ++i) {
        simd::add(left, read(call.inputs[i], first, count, buffer[1]), sum, count);
        left = sum;
      }
      store(y, first, count, sum, accumulates(call, 0));
    });
  };
}

/// y = function(x) on float32 chunks.
using OneInput = void (*)(const float* x, float* y, std::int64_t count);
/// y = function(x, z).
using TwoInputs = void (*)(const float* x, const float* z, float* y, std::int64_t count);

Prepared prepare_one(const KernelCall& call, OneInput function) {
  check_views(call, 1, 1);
  check_all_same_shape(call);
  return [call, function](Team& team) {
    const View& y = call.outputs[0];
    for_chunks(team, elements(y.shape), [&](std::int64_t first, std::int64_t count) {
      float in[kChunk];
      float out[kChunk];
      function(read(call.inputs[0], first, count, in), target(y, first, out), count);
      finish(y, first, count, out);
    });
  };
}

Prepared prepare_two(const KernelCall& call, TwoInputs function) {
  check_views(call, 2, 1);
  check_all_same_shape(call);
  return [call, function](Team& team) {
    const View& y = call.outputs[0];
    for_chunks(team, elements(y.shape), [&](std::int64_t first, std::int64_t count) {
      float in[2][kChunk];
      float out[kChunk];
      const float* x = read(call.inputs[0], first, count, in[0]);
      const float* z = read(call.inputs[1], first, count, in[1]);
      function(x, z, target(y, first, out), count);
      finish(y, first, count, out);
    });
  };
}

/// Gelu's exact form: no vector erf here, and no model of today's needs its speed.
void gelu_erf(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = 0.5F * x[i] * std::erfc(-x[i] / std::numbers::sqrt2_v<float>);
  }
}

void gelu_erf_grad(const float* x, const float* dy, float* dx, std::int64_t count) {
  constexpr float kDensity = 0.3989422804F;  // 1 / sqrt(2 pi)
  for (std::int64_t i = 0; i < count; ++i) {
    const float cdf = 0.5F * std::erfc(-x[i] / std::numbers::sqrt2_v<float>);
    dx[i] = dy[i] * (cdf + x[i] * kDensity * std::exp(-0.5F * x[i] * x[i]));
  }
}

void copy(const float* x, float* y, std::int64_t count) {
  if (x != y) std::copy_n(x, count, y);
}

bool tanh_form(const KernelCall& call) { return std::get<GeluParameters>(call.parameters).tanh; }

Prepared prepare_gelu(const KernelCall& call, Scratch&, int) {
  return prepare_one(call, tanh_form(call) ? simd::gelu_tanh : gelu_erf);
}
Prepared prepare_gelu_grad(const KernelCall& call, Scratch&, int) {
  return prepare_two(call, tanh_form(call) ? simd::gelu_tanh_grad : gelu_erf_grad);
}
Prepared prepare_swiglu(const KernelCall& call, Scratch&, int) {
  return prepare_two(call, simd::swiglu);
}
Prepared prepare_sigmoid(const KernelCall& call, Scratch&, int) {
  return prepare_one(call, simd::sigmoid);
}
Prepared prepare_sigmoid_grad(const KernelCall& call, Scratch&, int) {
  return prepare_two(call, simd::sigmoid_grad);
}
Prepared prepare_cast(const KernelCall& call, Scratch&, int) { return prepare_one(call, copy); }

Prepared prepare_swiglu_grad(const KernelCall& call, Scratch&, int) {
  check_views(call, 3, 2);
  check_all_same_shape(call);
  return [call](Team& team) {
    const View& dgate = call.outputs[0];
    const View& dup = call.outputs[1];
    for_chunks(team, elements(dgate.shape), [&](std::int64_t first, std::int64_t count) {
      float in[3][kChunk];
      float out[2][kChunk];
      const float* gate = read(call.inputs[0], first, count, in[0]);
      const float* up = read(call.inputs[1], first, count, in[1]);
      const float* dy = read(call.inputs[2], first, count, in[2]);
      simd::swiglu_grad(gate, up, dy, target(dgate, first, out[0]), target(dup, first, out[1]),
                        count);
      finish(dgate, first, count, out[0]);
      finish(dup, first, count, out[1]);
    });
  };
}

}  // namespace

std::vector<Operator> elementwise_operators() {
  return {{"add", prepare_add},
          {"gelu", prepare_gelu},
          {"gelu_grad", prepare_gelu_grad},
          {"swiglu", prepare_swiglu},
          {"swiglu_grad", prepare_swiglu_grad},
          {"sigmoid", prepare_sigmoid},
          {"sigmoid_grad", prepare_sigmoid_grad},
          {"cast", prepare_cast}};
}

}  // namespace sw::kernels::cpu
