#include "kernels/cpu/simd/product.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/product.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd/vector-inl.hpp"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): lanes of a register tile

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {

// A register tile of kStripRows x kVectors sums hides the latency of multiply-add and leaves room
// for the operands: 12 of 16 registers, 24 of 32 with AVX-512.
constexpr int kRows = static_cast<int>(kStripRows);
constexpr int kVectors = HWY_MAX_BYTES == 64 ? 4 : 2;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
constexpr int kColumns = kVectors * kLanes;
static_assert(kColumnMultiple % kColumns == 0);

std::int64_t strip_columns() { return kColumns; }
const char* target_name() { return hwy::TargetName(HWY_TARGET); }

/// Two numbers of k that lie side by side. Packed, the first is the upper half of 32 bits: a
/// processor adds the product of the upper halves first. So a float32 is a pair of a bfloat16 and
/// zero.
struct Pair {
  BFloat16 first;
  BFloat16 second;
};
static_assert(sizeof(Pair) == 4 && alignof(Pair) == alignof(BFloat16));

// A pair as one factor of 32 bits, which is kept and moved as if it were a float32.
HWY_INLINE float as_float(Pair pair) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(pair.first.bits) << 16U |
                              pair.second.bits);
}
template <typename D>
HWY_INLINE hn::Vec<D> load_as_floats(D d, const Pair* from) {
  const hn::Repartition<std::uint16_t, D> halves;
  const hn::RebindToUnsigned<D> whole;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::RotateRight<16>(hn::BitCast(whole, bits)));
}

/// The pairs of two rows that run across k.
struct TwoRows {
  HWY_INLINE Pair operator[](std::int64_t i) const { return {first[i], second[i]}; }
  HWY_INLINE TwoRows operator+(std::int64_t i) const { return {first + i, second + i}; }
  const BFloat16* first;
  const BFloat16* second;
};
template <typename D>
HWY_INLINE hn::Vec<D> load_as_floats(D d, TwoRows from) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::RebindToUnsigned<D> whole;
  const auto second = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from.second));
  return hn::Or(load_as_floats(d, from.first), hn::BitCast(d, hn::PromoteTo(whole, second)));
}

/// Rows across k, and of a wide strip along k, are packed so many factors of k at a time: what they
/// come from and where they go then stays in a first-level cache.
constexpr std::int64_t kDepthAtOnce = 16;

/// The stored rows of an operand's part. T is what one factor is packed from.
template <typename T>
struct Stored {
  explicit Stored(const Unpacked& part)
      : data(part.data), stride(part.row * size_of(part.dtype)), listed(part.listed) {}
  template <typename U = T>
  HWY_INLINE const U* row(std::int64_t i) const {
    return reinterpret_cast<const U*>(data + (listed == nullptr ? i : listed[i]) * stride);
  }
  /// Factor number k of all columns, of rows that run across k.
  HWY_INLINE auto across(std::int64_t k) const {
    if constexpr (std::is_same_v<T, Pair>) {
      return TwoRows{row<BFloat16>(2 * k), row<BFloat16>(2 * k + 1)};
    } else {
      return row(k);
    }
  }
  const std::byte* data;
  std::int64_t stride;
  const std::int32_t* listed;
};

/// to[k, 0 .. kCount - 1] = rows first .. first + kCount - 1 of from, for k from `k` on.
template <int kCount, int kWidth, typename T>
HWY_INLINE void turn_rest(const Stored<T>& from, std::int64_t first, std::int64_t k,
                          std::int64_t depth, float* to) {
  for (int i = 0; i < kCount; ++i) {
    const T* row = from.row(first + i);
    for (std::int64_t rest = k; rest < depth; ++rest) to[rest * kWidth + i] = as_float(row[rest]);
  }
}

#if HWY_TARGET == HWY_SCALAR

template <int kWidth, typename T>
HWY_INLINE void turn_strip(const Stored<T>& from, std::int64_t first, std::int64_t depth,
                           float* to) {
  turn_rest<kWidth, kWidth>(from, first, 0, depth, to);
}

#else

/// Six rows of two k, one k after the other, in three blocks of 128 bits. `rowsIJ` hold a number of
/// row I and one of row J as one lane.
template <typename D, typename V>
HWY_INLINE void interleave_three(D d, V rows01, V rows23, V rows45, V* to) {
  to[0] = hn::InterleaveLower(d, rows01, rows23);
  to[1] = hn::OddEven(rows01, rows45);
  to[2] = hn::InterleaveUpper(d, rows23, rows45);
}

/// A whole strip of six rows along k.
template <typename T>
HWY_INLINE void turn_six(const Stored<T>& from, std::int64_t first, std::int64_t depth, float* to) {
  const hn::CappedTag<float, 8> d;
  const hn::Repartition<double, decltype(d)> twos;
  constexpr int kLanesAtOnce = static_cast<int>(hn::MaxLanes(d));
  const T* rows[6];
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) rows[i] = from.row(first + i);
  std::int64_t k = 0;
  for (; k + kLanesAtOnce <= depth; k += kLanesAtOnce) {
    const auto lower = [&](int i) HWY_ATTR {
      return hn::BitCast(twos, hn::InterleaveLower(d, load_as_floats(d, rows[i] + k),
                                                   load_as_floats(d, rows[i + 1] + k)));
    };
    const auto upper = [&](int i) HWY_ATTR {
      return hn::BitCast(twos, hn::InterleaveUpper(d, load_as_floats(d, rows[i] + k),
                                                   load_as_floats(d, rows[i + 1] + k)));
    };
    hn::Vec<decltype(twos)> turned[6];
    interleave_three(twos, lower(0), lower(2), lower(4), turned);
    interleave_three(twos, upper(0), upper(2), upper(4), turned + 3);
    float* out = to + k * 6;
    if constexpr (kLanesAtOnce == 8) {  // the lower half of each, then the upper
      for (int i = 0; i < 6; i += 2) {
        hn::StoreU(hn::BitCast(d, hn::ConcatLowerLower(twos, turned[i + 1], turned[i])), d,
                   out + 4 * i);
        hn::StoreU(hn::BitCast(d, hn::ConcatUpperUpper(twos, turned[i + 1], turned[i])), d,
                   out + 4 * i + 24);
      }
    } else {
      for (int i = 0; i < 6; ++i) hn::StoreU(hn::BitCast(d, turned[i]), d, out + 4 * i);
    }
  }
  turn_rest<6, 6>(from, first, k, depth, to);
}

/// A whole strip whose stored rows run along k.
template <int kWidth, typename T>
HWY_INLINE void turn_strip(const Stored<T>& from, std::int64_t first, std::int64_t depth,
                           float* to) {
  if constexpr (kWidth == 6) {
    turn_six(from, first, depth, to);
  } else {
    static_assert(kWidth % 4 == 0);
    for (std::int64_t k = 0; k < depth; k += kDepthAtOnce) {
      const std::int64_t part = std::min(kDepthAtOnce, depth - k);
      for (int i = 0; i < kWidth; i += 4) {
        turn_four(from.row(first + i) + k, from.row(first + i + 1) + k, from.row(first + i + 2) + k,
                  from.row(first + i + 3) + k, part, to + k * kWidth + i, kWidth);
      }
    }
  }
}

#endif

/// to[i] = from[i] for i in [0, kCount).
template <int kCount, typename Row>
HWY_INLINE void copy(Row from, float* to) {
  const hn::CappedTag<float, kCount> d;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(d));
  constexpr int kWhole = kCount / kStep * kStep;
#pragma GCC unroll 4
  for (int i = 0; i < kWhole; i += kStep) hn::StoreU(load_as_floats(d, from + i), d, to + i);
  if constexpr (kCount > kWhole) copy<kCount - kWhole>(from + kWhole, to + kWhole);
}

/// Packs `depth` factors of all strips, each of which holds `strip_depth`: these and perhaps more.
template <int kWidth, typename T>
void pack_factors(const Unpacked& from, std::int64_t depth, std::int64_t strip_depth, float* to) {
  const Stored<T> rows(from);
  const std::int64_t whole = from.count / kWidth;
  if (from.rows_along_k) {
    for (std::int64_t i = 0; i < whole; ++i) {
      turn_strip<kWidth>(rows, i * kWidth, depth, to + i * kWidth * strip_depth);
    }
  } else {
    for (std::int64_t begin = 0; begin < depth; begin += kDepthAtOnce) {
      const std::int64_t end = std::min(depth, begin + kDepthAtOnce);
      for (std::int64_t i = 0; i < whole; ++i) {
        float* out = to + i * strip_depth * kWidth;
        for (std::int64_t k = begin; k < end; ++k) {
          copy<kWidth>(rows.across(k) + i * kWidth, out + k * kWidth);
        }
      }
    }
  }
  const std::int64_t first = whole * kWidth;
  if (first == from.count) return;
  float* out = to + first * strip_depth;
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t i = first; i < first + kWidth; ++i) {
      *out++ = i >= from.count     ? 0.0F
               : from.rows_along_k ? as_float(rows.row(i)[k])
                                   : as_float(rows.across(k)[i]);
    }
  }
}

/// What is left of `from` from k on.
Unpacked from_k(Unpacked from, std::int64_t k) {
  if (from.listed != nullptr && !from.rows_along_k) {
    from.listed += k;
  } else {
    from.data += k * (from.rows_along_k ? 1 : from.row) * size_of(from.dtype);
  }
  from.depth -= k;
  return from;
}

template <int kWidth>
void pack(const Unpacked& from, Factors factors, float* to) {
  if (from.dtype == DType::Float32) {
    pack_factors<kWidth, float>(from, from.depth, from.depth, to);
  } else if (factors == Factors::Floats) {
    pack_factors<kWidth, BFloat16>(from, from.depth, from.depth, to);
  } else {
    const std::int64_t pairs = from.depth / 2;
    const std::int64_t depth = packed_depth(factors, from.depth);
    pack_factors<kWidth, Pair>(from, pairs, depth, to);
    if (depth > pairs) {
      pack_factors<kWidth, BFloat16>(from_k(from, 2 * pairs), 1, depth, to + pairs * kWidth);
    }
  }
}

void pack_left(const Unpacked& from, Factors factors, float* to) { pack<kRows>(from, factors, to); }
void pack_right(const Unpacked& from, Factors factors, float* to) {
  pack<kColumns>(from, factors, to);
}

// How a factor of the left operand, in all lanes, is multiplied by some of the right one and added
// to their sums.
struct OfFloats {
  static HWY_INLINE void add(Floats left, Floats right, Floats& sum) {
    sum = hn::MulAdd(left, right, sum);
  }
};

/// In two steps, on any machine: the upper halves first.
struct OfPairs {
  static HWY_INLINE Floats upper(Floats pairs) {
    const hn::RebindToUnsigned<FloatTag> bits;
    return hn::And(pairs, hn::BitCast(FloatTag(), hn::Set(bits, 0xffff0000U)));
  }
  static HWY_INLINE Floats lower(Floats pairs) {
    const hn::RebindToUnsigned<FloatTag> bits;
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::BitCast(bits, pairs)));
  }
  static HWY_INLINE void add(Floats left, Floats right, Floats& sum) {
    sum = hn::MulAdd(upper(left), upper(right), sum);
    sum = hn::MulAdd(lower(left), lower(right), sum);
  }
};

#if HWY_ARCH_X86_64 && HWY_MAX_BYTES == 64
bool multiplies_pairs() { return __builtin_cpu_supports("avx512bf16") != 0; }

/// The instruction for it. An intrinsic would want a function compiled for that instruction set,
/// and so a second inner loop.
struct OfPairsAtOnce {
  static HWY_INLINE void add(Floats left, Floats right, Floats& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(left.raw), "v"(right.raw));
  }
};
#else
bool multiplies_pairs() { return false; }
using OfPairsAtOnce = OfPairs;
#endif

/// c[kRows, kColumns] = (or +=) one strip times another.
template <typename Products>
HWY_INLINE void multiply_strips(const float* left, const float* right, std::int64_t depth, float* c,
                                std::int64_t c_row, bool add) {
  const FloatTag d;
  // The result comes from farther away than a product of strips takes to begin.
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    hwy::Prefetch(c + r * c_row);
    hwy::Prefetch(c + r * c_row + kColumns - 1);
  }
  Floats sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    Floats column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = load(right + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Floats row = all(left[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Products::add(row, column[v], sum[r][v]);
    }
    left += kRows;
    right += kColumns;
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * c_row + v * kLanes;
      store(add ? hn::Add(load(to), sum[r][v]) : sum[r][v], to);
    }
  }
}

/// The same where only [rows, columns] of the result exist.
template <typename Products>
void multiply_part(const float* left, const float* right, const Tile& tile, std::int64_t row,
                   std::int64_t column) {
  HWY_ALIGN float part[kRows * kColumns];
  multiply_strips<Products>(left, right, tile.depth, part, kColumns, false);
  const std::int64_t rows = std::min<std::int64_t>(kRows, tile.rows - row);
  const std::int64_t columns = std::min<std::int64_t>(kColumns, tile.columns - column);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = tile.c + (row + r) * tile.c_row + column;
    const float* from = part + r * kColumns;
    for (std::int64_t i = 0; i < columns; ++i) to[i] = tile.add ? to[i] + from[i] : from[i];
  }
}

/// Fetches the memory of something unpacked, a little at a time.
class Fetch {
 public:
  Fetch(const Unpacked& what, std::int64_t calls)
      : data_(what.data), listed_(what.listed), stride_(what.row * size_of(what.dtype)) {
    const std::int64_t rows = what.rows_along_k ? what.count : what.depth;
    const std::int64_t length = what.rows_along_k ? what.depth : what.count;
    bytes_ = length * size_of(what.dtype);
    left_ = what.data == nullptr ? 0 : rows * ((bytes_ + kLine - 1) / kLine);
    each_ = (left_ + calls - 1) / calls;
  }
  HWY_INLINE void some() {
    for (std::int64_t i = std::min(each_, left_); i > 0; --i) {
      hwy::Prefetch(data_ + (listed_ == nullptr ? row_ : listed_[row_]) * stride_ + at_);
      at_ += kLine;
      if (at_ >= bytes_) {
        at_ = 0;
        ++row_;
      }
    }
    left_ -= each_;
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::byte* data_;
  const std::int32_t* listed_;
  std::int64_t stride_;
  std::int64_t row_ = 0;
  std::int64_t bytes_;
  std::int64_t at_ = 0;
  std::int64_t left_;
  std::int64_t each_;
};

template <typename Products>
void multiply_tile_of(const Tile& tile) {
  Fetch fetch(tile.next,
              ((tile.rows + kRows - 1) / kRows) * ((tile.columns + kColumns - 1) / kColumns));
  for (std::int64_t column = 0; column < tile.columns; column += kColumns) {
    const float* right = tile.right + column * tile.depth;
    for (std::int64_t row = 0; row < tile.rows; row += kRows) {
      const float* left = tile.left + row * tile.depth;
      fetch.some();
      if (row + kRows <= tile.rows && column + kColumns <= tile.columns) {
        multiply_strips<Products>(left, right, tile.depth, tile.c + row * tile.c_row + column,
                                  tile.c_row, tile.add);
      } else {
        multiply_part<Products>(left, right, tile, row, column);
      }
    }
  }
}

void multiply_tile(const Tile& tile) {
  if (tile.factors == Factors::Floats) {
    multiply_tile_of<OfFloats>(tile);
  } else if (multiplies_pairs()) {
    multiply_tile_of<OfPairsAtOnce>(tile);
  } else {
    multiply_tile_of<OfPairs>(tile);
  }
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(strip_columns);
HWY_EXPORT(target_name);
HWY_EXPORT(multiplies_pairs);
HWY_EXPORT(pack_left);
HWY_EXPORT(pack_right);
HWY_EXPORT(multiply_tile);

std::int64_t strip_columns() { return HWY_DYNAMIC_DISPATCH(strip_columns)(); }
std::string instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }
Factors fastest_factors() {
  return HWY_DYNAMIC_DISPATCH(multiplies_pairs)() ? Factors::Pairs : Factors::Floats;
}
void pack_left(const Unpacked& from, Factors factors, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_left)(from, factors, to);
}
void pack_right(const Unpacked& from, Factors factors, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_right)(from, factors, to);
}
void multiply_tile(const Tile& tile) { HWY_DYNAMIC_DISPATCH(multiply_tile)(tile); }

}  // namespace sw::kernels::simd
#endif
