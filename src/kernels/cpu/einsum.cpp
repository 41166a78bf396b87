#include "kernels/einsum.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "kernels/cpu/onednn/sgemm.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// Tiles of the result: cut by its size alone.
struct Cut {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Below this size oneDNN 2.6 multiplies without packing its operands (its own threshold for AVX2:
/// 1/m + 1/n >= 0.0038), which on products of 1536 x 384 x 4096 took a third longer.
bool is_packed(std::int64_t rows, std::int64_t columns) {
  return 1.0 / static_cast<double>(rows) + 1.0 / static_cast<double>(columns) < 0.0038;
}

/// oneDNN packs its operands per tile, so tiles are as large as a few threads allow: about 600,000
/// elements, 2 to 32 tiles, multiples of 48 (which suit register tiles of 6, 8, 16, 24 and 48).
/// Rows are cut first: on AVX2, halving the columns of a 4096 x 384 result cost 5 to 15 %, halving
/// its rows 0 to 3 % (oneDNN 2.6.3, one thread, November 2026).
Cut cut_of(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kElements = 600'000;
  constexpr std::int64_t kWhole = 16'384;  // a result so small stays whole
  constexpr std::int64_t kMultiple = 48;
  Cut cut{m, n};
  if (m * n <= kWhole) return cut;
  const std::int64_t wanted = std::clamp<std::int64_t>(m * n / kElements, 2, 32);
  for (std::int64_t tiles = 1; tiles < wanted;) {
    Cut next = cut;
    std::int64_t& longer = 4 * cut.rows >= cut.columns ? next.rows : next.columns;
    longer = round_up((longer + 1) / 2, kMultiple);
    const std::int64_t next_tiles = tiles_of(m, next.rows) * tiles_of(n, next.columns);
    // A second tile is worth it in any case: without it only one thread works.
    const bool slower = is_packed(cut.rows, cut.columns) && !is_packed(next.rows, next.columns);
    if (next_tiles == tiles || (slower && tiles > 1)) break;
    cut = next;
    tiles = next_tiles;
  }
  return cut;
}

/// An operand as float32: itself, or converted once per call.
struct Operand {
  View view;
  float* converted = nullptr;  ///< scratch, for bfloat16

  Operand(const View& source, Scratch& scratch) : view(source) {
    if (view.dtype == DType::BFloat16) converted = scratch.take<float>(elements(view.shape));
  }
  [[nodiscard]] const float* data() const {
    return converted != nullptr ? converted : reinterpret_cast<const float*>(view.data);
  }
  void convert(Team& team) const {
    if (converted == nullptr) return;
    constexpr std::int64_t kTile = 16 * kChunk;
    const std::int64_t count = elements(view.shape);
    for_tiles(team, tiles_of(count, kTile), [&](std::int64_t tile, int) {
      const std::int64_t begin = tile * kTile;
      (void)read(view, begin, std::min(kTile, count - begin), converted + begin);
    });
  }
};

struct Einsum {
  MatrixProduct product;  ///< result not transposed
  Operand a;
  Operand b;
  View c;
  bool add = false;
  Cut cut;
  float* rounding = nullptr;  ///< a tile per thread, when the result is bfloat16

  void run_tile(std::int64_t tile, int thread) const;
  void round_tile(const Sgemm& p, std::int64_t row, std::int64_t column, float* buffer) const;
};

/// Computes a tile in float32 and rounds it once, after adding what was there.
void Einsum::round_tile(const Sgemm& product_of_tile, std::int64_t row, std::int64_t column,
                        float* buffer) const {
  Sgemm p = product_of_tile;
  p.c = buffer;
  p.c_row = p.n;
  p.accumulate = false;
  sgemm(p);
  for (std::int64_t i = 0; i < p.m; ++i) {
    store(c, (row + i) * product.n + column, p.n, buffer + i * p.n, add);
  }
}

void Einsum::run_tile(std::int64_t tile, int thread) const {
  const auto& [m, n, k, a_transposed, b_transposed, result_transposed] = product;
  const std::int64_t row = tile % tiles_of(m, cut.rows) * cut.rows;
  const std::int64_t column = tile / tiles_of(m, cut.rows) * cut.columns;
  Sgemm p{.m = std::min(cut.rows, m - row),
          .n = std::min(cut.columns, n - column),
          .k = k,
          .a = a.data() + (a_transposed ? row : row * k),
          .a_transposed = a_transposed,
          .a_row = a_transposed ? m : k,
          .b = b.data() + (b_transposed ? column * k : column),
          .b_transposed = b_transposed,
          .b_row = b_transposed ? k : n,
          .c = nullptr,
          .c_row = n,
          .accumulate = add};
  if (rounding != nullptr) {
    round_tile(p, row, column, rounding + thread * cut.rows * cut.columns);
    return;
  }
  p.c = reinterpret_cast<float*>(c.data) + row * n + column;
  sgemm(p);
}

/// A transposed result is the product of the transposed operands the other way round.
void untranspose(MatrixProduct& product, View& a, View& b) {
  if (!product.result_transposed) return;
  std::swap(a, b);
  std::swap(product.m, product.n);
  const bool a_transposed = product.a_transposed;
  product.a_transposed = !product.b_transposed;
  product.b_transposed = !a_transposed;
  product.result_transposed = false;
}

Prepared prepare_einsum(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 2, 1);
  View a = call.inputs[0];
  View b = call.inputs[1];
  MatrixProduct product = matrix_product(std::get<EinsumParameters>(call.parameters).spec, a.shape,
                                         b.shape, call.outputs[0].shape);
  untranspose(product, a, b);
  const Cut cut = cut_of(product.m, product.n);
  Einsum einsum{.product = product,
                .a = Operand(a, scratch),
                .b = Operand(b, scratch),
                .c = call.outputs[0],
                .add = accumulates(call, 0),
                .cut = cut};
  if (einsum.c.dtype == DType::BFloat16) {
    einsum.rounding = scratch.take<float>(threads * cut.rows * cut.columns);
  }
  const std::int64_t count = product.m * product.n;
  if (count == 0 || product.k == 0) {
    return [c = einsum.c, count, add = einsum.add](Team&) {
      if (!add) fill_zero(c, 0, count);
    };
  }
  return [einsum](Team& team) {
    einsum.a.convert(team);
    einsum.b.convert(team);
    const std::int64_t tiles = tiles_of(einsum.product.m, einsum.cut.rows) *
                               tiles_of(einsum.product.n, einsum.cut.columns);
    for_tiles(team, tiles,
              [&einsum](std::int64_t tile, int thread) { einsum.run_tile(tile, thread); });
  };
}

}  // namespace

std::vector<Operator> einsum_operators() { return {{"einsum", prepare_einsum}}; }

}  // namespace sw::kernels::cpu
