#pragma once

#include <cstdint>

#include "kernels/kernel.hpp"

/// Elements of a view as float32, whatever it stores: kernels compute on plain arrays and only
/// these functions know bfloat16.
namespace sw::kernels::cpu {

/// Elements that elementwise kernels take at a time: a few such arrays fit in a first-level cache.
inline constexpr std::int64_t kChunk = 1024;

/// Elements [first, first + count) of `view`: its own memory if it is float32, else `buffer`,
/// filled.
[[nodiscard]] const float* read(const View& view, std::int64_t first, std::int64_t count,
                                float* buffer);
/// Where to compute elements from `first` on: the view's own memory if it is float32, else
/// `buffer`, which `finish` then rounds into the view.
[[nodiscard]] float* target(const View& view, std::int64_t first, float* buffer);
void finish(const View& view, std::int64_t first, std::int64_t count, const float* buffer);
/// Writes (or adds, in float32) ready values.
void store(const View& view, std::int64_t first, std::int64_t count, const float* values, bool add);
/// Writes elements [first, first + count) of `from` to `to` at `at`, converted if need be.
void copy_row(const View& from, std::int64_t first, const View& to, std::int64_t at,
              std::int64_t count);
void fill_zero(const View& view, std::int64_t first, std::int64_t count);

[[nodiscard]] const std::int32_t* integers(const View& view);
/// As `integers`, of an output.
[[nodiscard]] std::int32_t* written_integers(const View& view);
/// A float32 view's numbers; throws InternalError for another type.
[[nodiscard]] float* floats(const View& view);
[[nodiscard]] bool accumulates(const KernelCall& call, std::size_t output);

/// Product of all dims but the last, and the last.
struct Rows {
  std::int64_t count = 0;
  std::int64_t width = 0;
};
[[nodiscard]] Rows rows_of(const Shape& shape);
/// Rows of a tile so that it has about 16384 elements: independent of the number of threads.
[[nodiscard]] std::int64_t rows_per_tile(std::int64_t width);

/// Throws InternalError unless the call has so many views, each of a type that kernels take:
/// outputs numbers, but for the last `integer_outputs`.
void check_views(const KernelCall& call, std::size_t inputs, std::size_t outputs,
                 std::size_t integer_outputs = 0);
/// Throws InternalError unless the shapes are equal.
void check_same_shape(const KernelCall& call, const View& a, const View& b);

[[nodiscard]] inline std::int64_t tiles_of(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

}  // namespace sw::kernels::cpu
