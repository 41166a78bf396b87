#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/product.hpp"
#include "kernels/einsum.hpp"

/// A matrix product on a team. b is packed block by block into scratch that all threads read; a is
/// packed by the thread that needs it.
///
///   for each block of the result and of k
///     pack b's part                                      all threads
///     for each tile: some rows, some columns             one thread each
///       for each pass over some k
///         pack a's part                                  stays in a second-level cache
///         for each strip of columns, each strip of rows  one register tile
///
/// All of it is one sequence of tasks that threads take in order. A task waits for earlier ones
/// only: a tile for its block of b, and for its own part of the result; packing for the tiles that
/// read what it overwrites, two blocks ago. So a thread that is done with a block goes on to the
/// next.
///
/// Cuts depend on sizes alone and every element adds up its k in one order: threads change no bit.
///
/// A product may also take some of the stored rows of its operands, listed: what a group of experts
/// does, each with some rows and a matrix of its own.
namespace sw::kernels::cpu {

/// How a product is cut.
struct ProductCut {
  std::int64_t block_rows = 0;
  std::int64_t block_columns = 0;
  std::int64_t block_k = 0;  ///< all of k, or a multiple of pass_k
  std::int64_t tile_rows = 0;
  std::int64_t tile_columns = 0;
  std::int64_t pass_k = 0;
};
/// `sums`: the result is added up elsewhere first, and rounded at the end.
[[nodiscard]] ProductCut cut_of(std::int64_t m, std::int64_t n, std::int64_t k, bool sums);

/// Which letter `Product::of` takes some of, all of which are stored rows of its operands: none, m
/// (rows of a and of c), or k (rows of a and of b).
enum class Listed : std::uint8_t { None, M, K };

class Product {
 public:
  /// c = (or +=, in float32) a b; operands and c are float32 or bfloat16, and a bfloat16 result is
  /// rounded once. c must not be transposed and no size be 0. Scratch is for all that `of` can be,
  /// and the same on every machine. `factors`: what two bfloat16 operands are packed into.
  Product(const MatrixProduct& product, const View& a, const View& b, const View& c, bool add,
          Scratch& scratch, int threads, Listed listed = Listed::None,
          simd::Factors factors = simd::fastest_factors());
  void run(Team& team) const;

  /// The product over `count` >= 1 listed rows alone, with matrix number `matrix` of those that lie
  /// one after the other in b (Listed::M) or in c (Listed::K). Allocates nothing.
  [[nodiscard]] Product of(const std::int32_t* rows, std::int64_t count, std::int64_t matrix) const;

 private:
  /// An operand as [outer, k]. Views have no shape here, so that a copy allocates nothing.
  struct Operand {
    View view;
    bool rows_along_k;
    std::int64_t row;  ///< elements from one stored row to the next
    const std::int32_t* listed = nullptr;
    [[nodiscard]] simd::Unpacked part(Range outer, Range k) const;
  };
  /// Numbers of scratch: a block of b, passes of tiles, sums, tiles of a block.
  struct Memory {
    std::int64_t right = 0;
    std::int64_t left = 0;
    std::int64_t sums = 0;
    std::int64_t tiles = 0;
  };
  /// How far the threads are.
  struct Progress;
  struct Block {
    Range rows;
    Range columns;
    Range k;
  };

  void cut();
  [[nodiscard]] bool has_sums() const;
  [[nodiscard]] std::int64_t depth(std::int64_t k) const;
  [[nodiscard]] Memory memory() const;
  [[nodiscard]] Memory memory_of_any_count() const;
  [[nodiscard]] std::int64_t blocks() const;
  [[nodiscard]] Block block(std::int64_t index) const;
  void run_task(std::int64_t index, int thread, Progress& progress) const;
  [[nodiscard]] float* right(std::int64_t index) const;
  void pack_right(const Block& block, float* to, std::int64_t task) const;
  void multiply(const Block& block, const float* packed, std::int64_t index, int thread) const;
  [[nodiscard]] simd::Unpacked next_left(const Block& block, std::int64_t index,
                                         std::int64_t k) const;

  std::int64_t m_;
  std::int64_t n_;
  std::int64_t k_;
  int threads_;
  Listed listed_;
  simd::Factors factors_;
  Operand a_;
  Operand b_;
  View c_;
  const std::int32_t* c_rows_ = nullptr;
  bool add_;
  ProductCut cut_;
  std::int64_t packs_ = 0;  ///< packing tasks of a block, and ...
  std::int64_t tiles_ = 0;  ///< ... tiles; smaller blocks have idle ones
  Memory memory_ = {};
  std::int64_t* done_ = nullptr;  ///< blocks that each tile has added, if there are several
  float* right_ = nullptr;        ///< a block of b, or two
  float* left_ = nullptr;
  float* sums_ = nullptr;      ///< of a bfloat16 or listed result: of a block, or ...
  bool sums_of_tile_ = false;  ///< ... of a tile per thread, where k is one block
};

}  // namespace sw::kernels::cpu
