#include "kernels/cpu/product.hpp"

#include <algorithm>
#include <atomic>

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
// Fewer where the rows are those of an expert: few, so that smaller tiles pack them again and
// again.
constexpr std::int64_t kTilesOfListed = 8;
// Numbers of a block of the result where k has several blocks: of sums, which a bfloat16 result
// needs, 4 MiB; of the result itself as many as stay in a last-level cache from one block of k to
// the next, 16 MiB, so that b is packed seldom.
constexpr std::int64_t kSums = 1 << 20;
constexpr std::int64_t kResult = 4 << 20;
// Products so small are over before a second thread has begun.
constexpr std::int64_t kAlone = std::int64_t{64} * 64 * 64;

/// The fewest equal parts of at most `most`, then rounded up to `multiple`.
std::int64_t equal_parts(std::int64_t size, std::int64_t most, std::int64_t multiple) {
  const std::int64_t parts = tiles_of(size, std::max(most, multiple));
  return std::min(size, round_up(tiles_of(size, parts), multiple));
}

Range range_of(std::int64_t index, std::int64_t part, std::int64_t size) {
  return {index * part, std::min(size, (index + 1) * part)};
}

/// Waits until `count`, which another thread advances, is `least`: for as long as a tile takes, and
/// longer only where a thread has lost its core.
template <typename Count>
void wait_for(const Count& count, std::int64_t least) {
  constexpr int kSpins = 2000;
  for (int spin = 0;; ++spin) {
    const std::int64_t value = count.load(std::memory_order_acquire);
    if (value >= least) return;
    if (spin < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      count.wait(value, std::memory_order_acquire);
    }
  }
}

void advance(std::atomic<std::int64_t>& count) {
  count.fetch_add(1, std::memory_order_release);
  count.notify_all();
}

ProductCut cut_into(std::int64_t m, std::int64_t n, std::int64_t k, bool sums,
                    std::int64_t least_tiles) {
  ProductCut cut;
  cut.pass_k = equal_parts(k, kPassK, 4);
  cut.block_k = k <= kBlockK ? k : kBlockK / cut.pass_k * cut.pass_k;
  cut.block_columns = equal_parts(n, kBlock / cut.block_k, simd::kColumnMultiple);
  cut.block_rows = cut.block_k == k ? m
                                    : equal_parts(m, (sums ? kSums : kResult) / cut.block_columns,
                                                  simd::kStripRows);
  cut.tile_rows = kTileRows;
  cut.tile_columns = cut.block_columns;
  const auto tiles = [&cut] {
    return tiles_of(cut.block_rows, cut.tile_rows) * tiles_of(cut.block_columns, cut.tile_columns);
  };
  while (tiles() < least_tiles && cut.tile_rows > kTileRows / 2) cut.tile_rows /= 2;
  while (tiles() < least_tiles && cut.tile_columns > kPackColumns) {
    cut.tile_columns = round_up(cut.tile_columns / 2, simd::kColumnMultiple);
  }
  return cut;
}

}  // namespace

ProductCut cut_of(std::int64_t m, std::int64_t n, std::int64_t k, bool sums) {
  return cut_into(m, n, k, sums, kTiles);
}

Product::Product(const MatrixProduct& product, const View& a, const View& b, const View& c,
                 bool add, Scratch& scratch, int threads, Listed listed, simd::Factors factors)
    : m_(product.m),
      n_(product.n),
      k_(product.k),
      threads_(threads),
      listed_(listed),
      factors_(a.dtype == DType::BFloat16 && b.dtype == DType::BFloat16 ? factors
                                                                        : simd::Factors::Floats),
      a_{{a.data, a.dtype, {}}, !product.a_transposed, product.a_transposed ? m_ : k_},
      b_{{b.data, b.dtype, {}}, product.b_transposed, product.b_transposed ? k_ : n_},
      c_{c.data, c.dtype, {}},
      add_(add) {
  SW_CHECK(!product.result_transposed, "a product with a transposed result");
  SW_CHECK(listed != Listed::M || a_.rows_along_k, "a product over columns of a");
  SW_CHECK(listed != Listed::K || !(a_.rows_along_k || b_.rows_along_k),
           "a product over columns of a or b");
  cut();
  memory_ = listed == Listed::None ? memory() : memory_of_any_count();
  const bool several = listed != Listed::None || blocks() > 1;
  done_ = scratch.take<std::int64_t>(several ? memory_.tiles : 0);
  right_ = scratch.take<float>((several ? 2 : 1) * memory_.right);
  left_ = scratch.take<float>(memory_.left);
  sums_ = has_sums() ? scratch.take<float>(memory_.sums) : nullptr;
}

void Product::cut() {
  cut_ = cut_into(m_, n_, k_, has_sums(), listed_ == Listed::M ? kTilesOfListed : kTiles);
  sums_of_tile_ = cut_.block_k == k_;
  packs_ = tiles_of(cut_.block_k, cut_.pass_k) * tiles_of(cut_.block_columns, kPackColumns);
  tiles_ =
      tiles_of(cut_.block_rows, cut_.tile_rows) * tiles_of(cut_.block_columns, cut_.tile_columns);
}

/// What is rounded, or goes to rows here and there, is added up elsewhere first.
bool Product::has_sums() const { return c_.dtype == DType::BFloat16 || listed_ == Listed::M; }

/// Factors that `k` numbers of k take. pass_k is even or all of k, so that no pair is cut.
std::int64_t Product::depth(std::int64_t k) const { return simd::packed_depth(factors_, k); }

/// As many numbers as float32 takes: a plan holds on machines with and without pairs.
Product::Memory Product::memory() const {
  return {.right = round_up(cut_.block_columns, simd::kColumnMultiple) * cut_.block_k,
          .left = threads_ * cut_.tile_rows * cut_.pass_k,
          .sums = !has_sums()     ? 0
                  : sums_of_tile_ ? threads_ * cut_.tile_rows * cut_.tile_columns
                                  : cut_.block_rows * cut_.block_columns,
          .tiles = tiles_};
}

/// At least what `memory` says of any smaller m, or k. `cut_of` rounds columns up by less than
/// kColumnMultiple and rows by less than kStripRows; a tile has at most kTileRows.
Product::Memory Product::memory_of_any_count() const {
  const std::int64_t padded = round_up(n_, simd::kColumnMultiple);
  const std::int64_t depth = std::min(k_, kBlockK);
  const std::int64_t columns = listed_ == Listed::M ? cut_.block_columns : n_;
  Memory most = memory();
  most.tiles = tiles_of(m_ + simd::kStripRows, kTileRows / 2) * tiles_of(padded, kPackColumns / 2);
  most.left = threads_ * kTileRows * (listed_ == Listed::M ? cut_.pass_k : std::min(k_, kPassK));
  if (listed_ == Listed::K) {
    most.right = std::min(padded * depth, kBlock + simd::kColumnMultiple * depth);
  }
  if (has_sums()) {
    const std::int64_t rows = m_ + simd::kStripRows;
    most.sums = std::max(threads_ * kTileRows * columns,
                         std::min(rows * columns, kSums + simd::kStripRows * columns));
  }
  return most;
}

Product Product::of(const std::int32_t* rows, std::int64_t count, std::int64_t matrix) const {
  Product part = *this;
  part.a_.listed = rows;
  if (listed_ == Listed::M) {
    part.m_ = count;
    part.c_rows_ = rows;
    part.b_.view.data += matrix * n_ * k_ * size_of(b_.view.dtype);
  } else {
    SW_CHECK(listed_ == Listed::K, "a product that has no listed rows");
    part.k_ = count;
    part.b_.listed = rows;
    part.c_.data += matrix * m_ * n_ * size_of(c_.dtype);
  }
  part.cut();
  const Memory needed = part.memory();
  SW_CHECK(needed.right <= memory_.right && needed.left <= memory_.left &&
               needed.sums <= memory_.sums && needed.tiles <= memory_.tiles,
           "a product of {} x {} x {} needs more scratch than was planned for {} x {} x {}",
           part.m_, part.n_, part.k_, m_, n_, k_);
  return part;
}

std::int64_t Product::blocks() const {
  return tiles_of(m_, cut_.block_rows) * tiles_of(n_, cut_.block_columns) *
         tiles_of(k_, cut_.block_k);
}

/// The parts of a sum follow each other.
Product::Block Product::block(std::int64_t index) const {
  const std::int64_t deep = tiles_of(k_, cut_.block_k);
  const std::int64_t across = tiles_of(n_, cut_.block_columns);
  return {.rows = range_of(index / deep / across, cut_.block_rows, m_),
          .columns = range_of(index / deep % across, cut_.block_columns, n_),
          .k = range_of(index % deep, cut_.block_k, k_)};
}

/// Tasks that are over, of even blocks and of odd ones.
struct Product::Progress {
  alignas(64) std::atomic<std::int64_t> packed[2] = {0, 0};
  alignas(64) std::atomic<std::int64_t> multiplied[2] = {0, 0};
};

void Product::run(Team& team) const {
  Progress progress;
  if (blocks() > 1) std::fill_n(done_, tiles_, 0);
  const std::int64_t tasks = blocks() * (packs_ + tiles_);
  if (m_ * n_ * k_ <= kAlone) {
    for (std::int64_t task = 0; task < tasks; ++task) run_task(task, 0, progress);
    return;
  }
  for_tiles(team, tasks, [&](std::int64_t task, int thread) { run_task(task, thread, progress); });
}

float* Product::right(std::int64_t index) const { return right_ + index % 2 * memory_.right; }

void Product::run_task(std::int64_t index, int thread, Progress& progress) const {
  const std::int64_t number = index / (packs_ + tiles_);
  const std::int64_t task = index % (packs_ + tiles_);
  const std::int64_t before = number / 2;  // blocks of the same parity
  std::atomic<std::int64_t>& packed = progress.packed[number % 2];
  std::atomic<std::int64_t>& multiplied = progress.multiplied[number % 2];
  if (task < packs_) {
    wait_for(multiplied, before * tiles_);
    pack_right(block(number), right(number), task);
    advance(packed);
    return;
  }
  const std::int64_t tile = task - packs_;
  wait_for(packed, (before + 1) * packs_);
  if (blocks() == 1) return multiply(block(number), right(number), tile, thread);
  const std::atomic_ref<std::int64_t> done(done_[tile]);
  wait_for(done, number);
  multiply(block(number), right(number), tile, thread);
  done.store(number + 1, std::memory_order_release);
  done.notify_all();
  advance(multiplied);
}

simd::Unpacked Product::Operand::part(Range outer, Range k) const {
  const Range rows = rows_along_k ? outer : k;
  const Range columns = rows_along_k ? k : outer;
  const std::int64_t element = columns.begin + (listed == nullptr ? rows.begin * row : 0);
  return {.data = view.data + element * size_of(view.dtype),
          .dtype = view.dtype,
          .row = row,
          .rows_along_k = rows_along_k,
          .listed = listed == nullptr ? nullptr : listed + rows.begin,
          .count = outer.size(),
          .depth = k.size()};
}

/// A block is laid out pass by pass, and strip by strip within a pass.
void Product::pack_right(const Block& block, float* to, std::int64_t task) const {
  const std::int64_t across = tiles_of(cut_.block_columns, kPackColumns);
  const Range columns = range_of(task % across, kPackColumns, block.columns.size());
  const Range k = range_of(task / across, cut_.pass_k, block.k.size());
  if (columns.size() <= 0 || k.size() <= 0) return;
  const std::int64_t padded = round_up(block.columns.size(), simd::kColumnMultiple);
  simd::pack_right(b_.part({block.columns.begin + columns.begin, block.columns.begin + columns.end},
                           {block.k.begin + k.begin, block.k.begin + k.end}),
                   factors_, to + depth(k.begin) * padded + columns.begin * depth(k.size()));
}

/// What this thread will probably pack after pass `k` of a tile: the next pass, or the first one of
/// a tile that no other thread has begun.
simd::Unpacked Product::next_left(const Block& block, std::int64_t index, std::int64_t k) const {
  const std::int64_t across = tiles_of(cut_.block_columns, cut_.tile_columns);
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

void Product::multiply(const Block& block, const float* packed, std::int64_t index,
                       int thread) const {
  const std::int64_t across = tiles_of(cut_.block_columns, cut_.tile_columns);
  const Range rows = range_of(index / across, cut_.tile_rows, block.rows.size());
  const Range columns = range_of(index % across, cut_.tile_columns, block.columns.size());
  if (rows.size() <= 0 || columns.size() <= 0) return;
  const std::int64_t first_row = block.rows.begin + rows.begin;
  const std::int64_t first_column = block.columns.begin + columns.begin;
  float* left = left_ + thread * cut_.tile_rows * cut_.pass_k;
  simd::Tile tile;
  tile.rows = rows.size();
  tile.columns = columns.size();
  tile.factors = factors_;
  tile.left = left;
  if (sums_ == nullptr) {
    tile.c = reinterpret_cast<float*>(c_.data) + first_row * n_ + first_column;
    tile.c_row = n_;
  } else {
    tile.c_row = sums_of_tile_ ? cut_.tile_columns : cut_.block_columns;
    tile.c = sums_ + (sums_of_tile_ ? thread * cut_.tile_rows * cut_.tile_columns
                                    : rows.begin * tile.c_row + columns.begin);
  }
  tile.add = block.k.begin > 0 || (add_ && sums_ == nullptr);
  const std::int64_t padded = round_up(block.columns.size(), simd::kColumnMultiple);
  for (std::int64_t k = 0; k < block.k.size(); k += cut_.pass_k) {
    const Range pass = {block.k.begin + k, std::min(block.k.begin + k + cut_.pass_k, block.k.end)};
    simd::pack_left(a_.part({block.rows.begin + rows.begin, block.rows.begin + rows.end}, pass),
                    factors_, left);
    tile.depth = depth(pass.size());
    tile.next = next_left(block, index, k);
    tile.right = packed + depth(k) * padded + columns.begin * tile.depth;
    simd::multiply_tile(tile);
    tile.add = true;
  }
  if (sums_ == nullptr || block.k.end < k_) return;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const std::int64_t row = c_rows_ == nullptr ? first_row + i : c_rows_[first_row + i];
    store(c_, row * n_ + first_column, tile.columns, tile.c + i * tile.c_row, add_);
  }
}

}  // namespace sw::kernels::cpu
