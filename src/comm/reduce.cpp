#include "comm/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/reduce.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sw::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Elements of the running result that stay in the first-level cache while the operands pass.
constexpr std::int64_t kBlock = 1024;
/// Bytes that all vectors divide.
constexpr std::int64_t kLine = 64;

struct Sum {
  template <typename T>
  static T apply(T left, T right) {
    return static_cast<T>(left + right);
  }
};
struct Max {
  template <typename T>
  static T apply(T left, T right) {
    // The second comparison is true for a NaN on the right; one on the left stays by the first.
    return right > left || right != right ? right : left;
  }
};

/// Elements as stored and as computed with.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static T load(T stored) { return stored; }
  static T store(T value) { return value; }
};
struct Half {
  using Stored = BFloat16;
  using Value = float;
  static float load(BFloat16 stored) { return to_float(stored); }
  static BFloat16 store(float value) { return to_bfloat16(value); }
};

/// The passes over a block, left to the compiler's vectors. Targets are an operand or apart from
/// all, so no iteration depends on another.
template <typename Type, typename Op>
struct Passes {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;

  static void first(Value* result, const Stored* left, const Stored* right, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = Op::apply(Type::load(left[i]), Type::load(right[i]));
    }
  }
  static void next(Value* result, const Stored* right, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = Op::apply(result[i], Type::load(right[i]));
    }
  }
  static void last(Stored* target, const Value* result, const Stored* right, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      target[i] = Type::store(Op::apply(result[i], Type::load(right[i])));
    }
  }
  static void both(Stored* target, const Stored* left, const Stored* right, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      target[i] = Type::store(Op::apply(Type::load(left[i]), Type::load(right[i])));
    }
  }
};

/// Elements up to the first multiple of a cache line.
template <typename T>
std::int64_t up_to_line(const T* target, std::int64_t count) {
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(target) % kLine);
  return beyond == 0 ? 0 : std::min(count, (kLine - beyond) / static_cast<std::int64_t>(sizeof(T)));
}

/// Asks for the cache line of `address` in order to write it. Other ranks have read the lines that
/// are written here; taking them back one store at a time costs a fifth of a sum in cache, and a
/// quarter where the ranks' cores share no cache (two Zen 3 cores, 64 KiB and 1 MiB, side by side
/// with the same loop without).
HWY_INLINE void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  // Not __builtin_prefetch, which asks for reading where the compiler's target has no PREFETCHW.
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// target[i] = value(i), four vectors of loads ahead of their stores; returns where it ended.
template <Stores kStores, typename T, typename Value>
HWY_INLINE std::int64_t store_vectors(T* target, std::int64_t begin, std::int64_t count,
                                      const Value& value) {
  constexpr std::int64_t kAhead = 512 / sizeof(T);
  constexpr std::int64_t kPerLine = kLine / sizeof(T);
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto put = [d](auto v, T* to) HWY_ATTR {
    if constexpr (kStores == Stores::Streamed) {
      hn::Stream(v, d, to);
    } else {
      hn::StoreU(v, d, to);
    }
  };
  std::int64_t i = begin;
  for (; i + 4 * n <= count; i += 4 * n) {
    if (kStores == Stores::Cached && i + kAhead + 4 * n <= count) {
      for (std::int64_t k = 0; k < 4 * n; k += kPerLine) {
        prefetch_to_write(target + i + kAhead + k);
      }
    }
    const auto v0 = value(d, i);
    const auto v1 = value(d, i + n);
    const auto v2 = value(d, i + 2 * n);
    const auto v3 = value(d, i + 3 * n);
    put(v0, target + i);
    put(v1, target + i + n);
    put(v2, target + i + 2 * n);
    put(v3, target + i + 3 * n);
  }
  if constexpr (kStores == Stores::Streamed) hwy::FlushStream();
  return i;
}

/// The same, starting at a whole cache line.
template <typename T, typename Value>
HWY_INLINE std::int64_t store_vectors(T* target, std::int64_t begin, std::int64_t count,
                                      Stores stores, const Value& value) {
  return stores == Stores::Streamed ? store_vectors<Stores::Streamed>(target, begin, count, value)
                                    : store_vectors<Stores::Cached>(target, begin, count, value);
}

template <typename T>
void add_two(T* target, const T* left, const T* right, std::int64_t count, Stores stores) {
  using Tail = Passes<Plain<T>, Sum>;
  const auto sum = [left, right](auto d, std::int64_t i) HWY_ATTR {
    return hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i));
  };
  const std::int64_t begin = up_to_line(target, count);
  Tail::both(target, left, right, begin);
  const std::int64_t end = store_vectors(target, begin, count, stores, sum);
  Tail::both(target + end, left + end, right + end, count - end);
}

void copy(std::byte* target, const std::byte* source, std::int64_t bytes, Stores stores) {
  auto* to = reinterpret_cast<std::uint8_t*>(target);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  const std::int64_t begin = up_to_line(to, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(begin));
  const std::int64_t end =
      store_vectors(to, begin, bytes, stores,
                    [from](auto d, std::int64_t i) HWY_ATTR { return hn::LoadU(d, from + i); });
  std::memcpy(to + end, from + end, static_cast<std::size_t>(bytes - end));
}

template <typename Type, typename Op>
void reduce(std::byte* target_bytes, std::span<const std::byte* const> operands, std::int64_t count,
            Stores stores) {
  using Stored = typename Type::Stored;
  auto* target = reinterpret_cast<Stored*>(target_bytes);
  const auto operand = [&](std::size_t index) {
    return reinterpret_cast<const Stored*>(operands[index]);
  };
  if (operands.size() == 2) {
    if constexpr (std::is_same_v<Op, Sum> && std::is_arithmetic_v<Stored>) {
      add_two(target, operand(0), operand(1), count, stores);
    } else {
      Passes<Type, Op>::both(target, operand(0), operand(1), count);
    }
    return;
  }
  std::array<typename Type::Value, kBlock> result;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    Passes<Type, Op>::first(result.data(), operand(0) + begin, operand(1) + begin, length);
    for (std::size_t index = 2; index + 1 < operands.size(); ++index) {
      Passes<Type, Op>::next(result.data(), operand(index) + begin, length);
    }
    Passes<Type, Op>::last(target + begin, result.data(), operand(operands.size() - 1) + begin,
                           length);
  }
}

/// Signed sums wrap like unsigned ones, without being undefined, so `Type` may differ from
/// `MaxType`.
template <typename Type, typename MaxType = Type>
void reduce(ReduceOp op, std::byte* target, std::span<const std::byte* const> operands,
            std::int64_t count, Stores stores) {
  if (op == ReduceOp::Sum) {
    reduce<Type, Sum>(target, operands, count, stores);
  } else {
    reduce<MaxType, Max>(target, operands, count, stores);
  }
}

}  // namespace

void reduce_on_target(DType dtype, ReduceOp op, std::byte* target,
                      std::span<const std::byte* const> operands, std::int64_t count,
                      Stores stores) {
  if (operands.size() == 1) {
    if (target != operands[0]) copy(target, operands[0], count * size_of(dtype), stores);
    return;
  }
  switch (dtype) {
    case DType::Float64:
      return reduce<Plain<double>>(op, target, operands, count, stores);
    case DType::Float32:
      return reduce<Plain<float>>(op, target, operands, count, stores);
    case DType::BFloat16:
      return reduce<Half>(op, target, operands, count, stores);
    case DType::Int64:
      return reduce<Plain<std::uint64_t>, Plain<std::int64_t>>(op, target, operands, count, stores);
    case DType::UInt64:
      return reduce<Plain<std::uint64_t>>(op, target, operands, count, stores);
    case DType::Int32:
      return reduce<Plain<std::uint32_t>, Plain<std::int32_t>>(op, target, operands, count, stores);
    case DType::Float16:
    case DType::UInt8:
      break;
  }
  SW_CHECK(false, "{} cannot be reduced", to_text(dtype));
}

}  // namespace sw::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw {

HWY_EXPORT(reduce_on_target);

bool can_reduce(DType dtype) { return dtype != DType::Float16 && dtype != DType::UInt8; }

void reduce_elements(DType dtype, ReduceOp op, std::byte* target,
                     std::span<const std::byte* const> operands, std::int64_t count,
                     Stores stores) {
  SW_CHECK(!operands.empty(), "a reduction of no operands");
  HWY_DYNAMIC_DISPATCH(reduce_on_target)(dtype, op, target, operands, count, stores);
}

}  // namespace sw
#endif
