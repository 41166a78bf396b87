#include "kernels/cpu/product.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

// Tried on two Zen 3 cores (32 KiB, 512 KiB and 32 MiB of cache) in November 2026; all of them are
// flat within the noise of that machine by a third up or down.
//
// A strip of b, 384 x 16 numbers, stays in a first-level cache while those of a stream through it.
constexpr std::int64_t kPassK = 384;
// A sum so short is one block, and its result is written once; longer ones are cut.
constexpr std::int64_t kBlockK = 3 * kPassK;
// Packed numbers of a block of b: 1.75 MiB of a last-level cache, 384 columns of the deepest block.
constexpr std::int64_t kBlock = 448 << 10;
// Columns of one packing task.
constexpr std::int64_t kPackColumns = 2 * simd::kColumnMultiple;
// Packed, 96 x 384 numbers of a: a third of a second-level cache.
constexpr std::int64_t kTileRows = 16 * simd::kStripRows;
// So many tiles of a block let a few threads end at about the same time.
constexpr std::int64_t kTiles = 16;
// A bfloat16 result needs a block of sums where k has several blocks: 4 MiB.
constexpr std::int64_t kSums = 1 << 20;
// Products so small are over before a second thread has begun.
constexpr std::int64_t kAlone = 64 * 64 * 64;

/// The fewest equal parts of at most `most`, then rounded up to `multiple`.
std::int64_t equal_parts(std::int64_t size, std::int64_t most, std::int64_t multiple) {
  const std::int64_t parts = tiles_of(size, std::max(most, multiple));
  return std::min(size, round_up(tiles_of(size, parts), multiple));
}

Range range_of(std::int64_t index, std::int64_t part, std::int64_t size) {
  return {index * part, std::min(size, (index + 1) * part)};
}

}  // namespace

ProductCut cut_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  ProductCut cut;
  cut.pass_k = equal_parts(k, kPassK, 4);
  cut.block_k = k <= kBlockK ? k : kBlockK / cut.pass_k * cut.pass_k;
  cut.block_columns = equal_parts(n, kBlock / cut.block_k, simd::kColumnMultiple);
  cut.block_rows =
      cut.block_k == k ? m : equal_parts(m, kSums / cut.block_columns, simd::kStripRows);
  cut.tile_rows = kTileRows;
  cut.tile_columns = cut.block_columns;
  const auto tiles = [&cut] {
    return tiles_of(cut.block_rows, cut.tile_rows) * tiles_of(cut.block_columns, cut.tile_columns);
  };
  while (tiles() < kTiles && cut.tile_rows > kTileRows / 2) cut.tile_rows /= 2;
  while (tiles() < kTiles && cut.tile_columns > kPackColumns) {
    cut.tile_columns = round_up(cut.tile_columns / 2, simd::kColumnMultiple);
  }
  return cut;
}

Product::Product(const MatrixProduct& product, const View& a, const View& b, const View& c,
                 bool add, Scratch& scratch, int threads)
    : m_(product.m),
      n_(product.n),
      k_(product.k),
      threads_(threads),
      a_{a, !product.a_transposed, product.a_transposed ? m_ : k_},
      b_{b, product.b_transposed, product.b_transposed ? k_ : n_},
      c_(c),
      add_(add),
      cut_(cut_of(m_, n_, k_)),
      right_(
          scratch.take<float>(round_up(cut_.block_columns, simd::kColumnMultiple) * cut_.block_k)),
      left_(scratch.take<float>(threads * cut_.tile_rows * cut_.pass_k)) {
  SW_CHECK(!product.result_transposed, "a product with a transposed result");
  if (c.dtype != DType::BFloat16) return;
  sums_of_tile_ = cut_.block_k == k_;
  sums_ = scratch.take<float>(sums_of_tile_ ? threads * cut_.tile_rows * cut_.tile_columns
                                            : cut_.block_rows * cut_.block_columns);
}

void Product::run(Team& team) const {
  for (std::int64_t row = 0; row < m_; row += cut_.block_rows) {
    for (std::int64_t column = 0; column < n_; column += cut_.block_columns) {
      for (std::int64_t k = 0; k < k_; k += cut_.block_k) {
        run_block(team, {.rows = {row, std::min(m_, row + cut_.block_rows)},
                         .columns = {column, std::min(n_, column + cut_.block_columns)},
                         .k = {k, std::min(k_, k + cut_.block_k)}});
      }
    }
  }
}

void Product::run_block(Team& team, const Block& block) const {
  const std::int64_t packs =
      tiles_of(block.k.size(), cut_.pass_k) * tiles_of(block.columns.size(), kPackColumns);
  const std::int64_t tiles = tiles_of(block.rows.size(), cut_.tile_rows) *
                             tiles_of(block.columns.size(), cut_.tile_columns);
  if (m_ * n_ * k_ <= kAlone) {
    for (std::int64_t task = 0; task < packs; ++task) pack_right(block, task);
    for (std::int64_t tile = 0; tile < tiles; ++tile) multiply(block, tile, 0);
    return;
  }
  for_tiles(team, packs, [&](std::int64_t task, int) { pack_right(block, task); });
  for_tiles(team, tiles, [&](std::int64_t tile, int thread) { multiply(block, tile, thread); });
}

simd::Unpacked Product::Operand::part(Range outer, Range k) const {
  const std::int64_t element =
      rows_along_k ? outer.begin * row + k.begin : k.begin * row + outer.begin;
  return {.data = view.data + element * size_of(view.dtype),
          .dtype = view.dtype,
          .row = row,
          .rows_along_k = rows_along_k,
          .count = outer.size(),
          .depth = k.size()};
}

/// A block is laid out pass by pass, and strip by strip within a pass.
void Product::pack_right(const Block& block, std::int64_t task) const {
  const std::int64_t across = tiles_of(block.columns.size(), kPackColumns);
  const Range columns = range_of(task % across, kPackColumns, block.columns.size());
  const Range k = range_of(task / across, cut_.pass_k, block.k.size());
  const std::int64_t padded = round_up(block.columns.size(), simd::kColumnMultiple);
  simd::pack_right(b_.part({block.columns.begin + columns.begin, block.columns.begin + columns.end},
                           {block.k.begin + k.begin, block.k.begin + k.end}),
                   right_ + k.begin * padded + columns.begin * k.size());
}

/// What this thread will probably pack after pass `k` of a tile: the next pass, or the first one of
/// a tile that no other thread has begun.
simd::Unpacked Product::next_left(const Block& block, std::int64_t index, std::int64_t k) const {
  const std::int64_t across = tiles_of(block.columns.size(), cut_.tile_columns);
  std::int64_t from = k + cut_.pass_k;
  if (from >= block.k.size()) {
    from = 0;
    index += threads_;
  }
  const Range rows = range_of(index / across, cut_.tile_rows, block.rows.size());
  if (rows.size() <= 0) return {};
  const Range pass = range_of(from / cut_.pass_k, cut_.pass_k, block.k.size());
  return a_.part({block.rows.begin + rows.begin, block.rows.begin + rows.end},
                 {block.k.begin + pass.begin, block.k.begin + pass.end});
}

void Product::multiply(const Block& block, std::int64_t index, int thread) const {
  const std::int64_t across = tiles_of(block.columns.size(), cut_.tile_columns);
  const Range rows = range_of(index / across, cut_.tile_rows, block.rows.size());
  const Range columns = range_of(index % across, cut_.tile_columns, block.columns.size());
  const std::int64_t first =
      (block.rows.begin + rows.begin) * n_ + block.columns.begin + columns.begin;
  float* left = left_ + thread * cut_.tile_rows * cut_.pass_k;
  simd::Tile tile;
  tile.rows = rows.size();
  tile.columns = columns.size();
  tile.left = left;
  if (sums_ == nullptr) {
    tile.c = reinterpret_cast<float*>(c_.data) + first;
    tile.c_row = n_;
  } else {
    tile.c_row = sums_of_tile_ ? cut_.tile_columns : cut_.block_columns;
    tile.c = sums_ + (sums_of_tile_ ? thread * cut_.tile_rows * cut_.tile_columns
                                    : rows.begin * tile.c_row + columns.begin);
  }
  tile.add = block.k.begin > 0 || (add_ && sums_ == nullptr);
  const std::int64_t padded = round_up(block.columns.size(), simd::kColumnMultiple);
  for (std::int64_t k = 0; k < block.k.size(); k += cut_.pass_k) {
    tile.depth = std::min(cut_.pass_k, block.k.size() - k);
    const std::int64_t from = block.k.begin + k;
    simd::pack_left(a_.part({block.rows.begin + rows.begin, block.rows.begin + rows.end},
                            {from, from + tile.depth}),
                    left);
    tile.next = next_left(block, index, k);
    tile.right = right_ + k * padded + columns.begin * tile.depth;
    simd::multiply_tile(tile);
    tile.add = true;
  }
  if (sums_ == nullptr || block.k.end < k_) return;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    store(c_, first + i * n_, tile.columns, tile.c + i * tile.c_row, add_);
  }
}

}  // namespace sw::kernels::cpu
