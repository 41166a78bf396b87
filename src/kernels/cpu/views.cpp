#include "kernels/cpu/views.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "kernels/cpu/simd/elementwise.hpp"

namespace sw::kernels::cpu {
namespace {

float* as_floats(const View& view) { return reinterpret_cast<float*>(view.data); }
BFloat16* as_bfloat16(const View& view) { return reinterpret_cast<BFloat16*>(view.data); }

}  // namespace

const float* read(const View& view, std::int64_t first, std::int64_t count, float* buffer) {
  if (view.dtype == DType::Float32) return as_floats(view) + first;
  simd::bfloat16_to_float(as_bfloat16(view) + first, buffer, count);
  return buffer;
}

float* target(const View& view, std::int64_t first, float* buffer) {
  return view.dtype == DType::Float32 ? as_floats(view) + first : buffer;
}

void finish(const View& view, std::int64_t first, std::int64_t count, const float* buffer) {
  if (view.dtype == DType::BFloat16) {
    simd::float_to_bfloat16(buffer, as_bfloat16(view) + first, count);
  }
}

void store(const View& view, std::int64_t first, std::int64_t count, const float* values,
           bool add) {
  if (view.dtype == DType::Float32) {
    float* out = as_floats(view) + first;
    if (add) {
      simd::add(out, values, out, count);
    } else {
      std::copy_n(values, count, out);
    }
    return;
  }
  float buffer[kChunk];
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t size = std::min(kChunk, count - begin);
    const float* sum = values + begin;
    if (add) {
      simd::add(read(view, first + begin, size, buffer), sum, buffer, size);
      sum = buffer;
    }
    simd::float_to_bfloat16(sum, as_bfloat16(view) + first + begin, size);
  }
}

void copy_row(const View& from, std::int64_t first, const View& to, std::int64_t at,
              std::int64_t count) {
  if (from.dtype == to.dtype) {
    const std::int64_t size = size_of(from.dtype);
    std::memcpy(to.data + at * size, from.data + first * size,
                static_cast<std::size_t>(count * size));
    return;
  }
  float buffer[kChunk];
  for (std::int64_t i = 0; i < count; i += kChunk) {
    const std::int64_t part = std::min(kChunk, count - i);
    store(to, at + i, part, read(from, first + i, part, buffer), false);
  }
}

void fill_zero(const View& view, std::int64_t first, std::int64_t count) {
  const std::int64_t size = size_of(view.dtype);
  std::memset(view.data + first * size, 0, static_cast<std::size_t>(count * size));
}

std::int32_t* written_integers(const View& view) {
  SW_CHECK(view.dtype == DType::Int32, "a kernel takes int32 here and got {}", to_text(view.dtype));
  return reinterpret_cast<std::int32_t*>(view.data);
}

const std::int32_t* integers(const View& view) { return written_integers(view); }

float* floats(const View& view) {
  SW_CHECK(view.dtype == DType::Float32, "a kernel reads float32 here and got {}",
           to_text(view.dtype));
  return as_floats(view);
}

bool accumulates(const KernelCall& call, std::size_t output) {
  return output < call.accumulate.size() && call.accumulate[output];
}

Rows rows_of(const Shape& shape) {
  const std::int64_t width = shape.empty() ? 1 : shape.back();
  return {width == 0 ? 0 : elements(shape) / width, width};
}

std::int64_t rows_per_tile(std::int64_t width) {
  constexpr std::int64_t kTile = 16384;
  return std::max<std::int64_t>(1, kTile / std::max<std::int64_t>(1, width));
}

void check_views(const KernelCall& call, std::size_t inputs, std::size_t outputs,
                 std::size_t integer_outputs) {
  SW_CHECK(call.inputs.size() == inputs && call.outputs.size() == outputs,
           "{} takes {} inputs and {} outputs and got {} and {}", call.op, inputs, outputs,
           call.inputs.size(), call.outputs.size());
  const auto check = [&call](const View& view, bool may_be_number, bool may_be_integer) {
    const bool number = view.dtype == DType::Float32 || view.dtype == DType::BFloat16;
    const bool integer = view.dtype == DType::Int32 || view.dtype == DType::Int64;
    SW_CHECK((number && may_be_number) || (integer && may_be_integer), "{} has no kernel for {}",
             call.op, to_text(view.dtype));
  };
  for (const View& view : call.inputs) check(view, true, true);
  for (std::size_t i = 0; i < outputs; ++i) {
    const bool integer = i + integer_outputs >= outputs;
    check(call.outputs[i], !integer, integer);
  }
}

void check_same_shape(const KernelCall& call, const View& a, const View& b) {
  SW_CHECK(a.shape == b.shape, "{}: the shapes {} and {} should be equal", call.op,
           to_text(a.shape), to_text(b.shape));
}

}  // namespace sw::kernels::cpu
