#include "comm/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"

namespace sw {
namespace {

/// Elements of the running result that stay in the first-level cache while the operands pass.
constexpr std::int64_t kBlock = 1024;

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

/// The three passes over a block. Targets are an operand or apart from all, so no iteration depends
/// on another.
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

template <typename Type, typename Op>
void reduce(std::byte* target_bytes, std::span<const std::byte* const> operands,
            std::int64_t count) {
  using Stored = typename Type::Stored;
  auto* target = reinterpret_cast<Stored*>(target_bytes);
  const auto operand = [&](std::size_t index) {
    return reinterpret_cast<const Stored*>(operands[index]);
  };
  if (operands.size() == 2) {
    Passes<Type, Op>::both(target, operand(0), operand(1), count);
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

template <typename Type, typename MaxType = Type>
void reduce(ReduceOp op, std::byte* target, std::span<const std::byte* const> operands,
            std::int64_t count) {
  if (op == ReduceOp::Sum) {
    reduce<Type, Sum>(target, operands, count);
  } else {
    reduce<MaxType, Max>(target, operands, count);
  }
}

}  // namespace

bool can_reduce(DType dtype) { return dtype != DType::Float16 && dtype != DType::UInt8; }

void reduce_elements(DType dtype, ReduceOp op, std::byte* target,
                     std::span<const std::byte* const> operands, std::int64_t count) {
  SW_CHECK(!operands.empty(), "a reduction of no operands");
  if (operands.size() == 1) {
    if (target != operands[0]) {
      std::memcpy(target, operands[0], static_cast<std::size_t>(count * size_of(dtype)));
    }
    return;
  }
  switch (dtype) {
    case DType::Float64:
      return reduce<Plain<double>>(op, target, operands, count);
    case DType::Float32:
      return reduce<Plain<float>>(op, target, operands, count);
    case DType::BFloat16:
      return reduce<Half>(op, target, operands, count);
    // Signed sums wrap like unsigned ones, without being undefined.
    case DType::Int64:
      return reduce<Plain<std::uint64_t>, Plain<std::int64_t>>(op, target, operands, count);
    case DType::UInt64:
      return reduce<Plain<std::uint64_t>>(op, target, operands, count);
    case DType::Int32:
      return reduce<Plain<std::uint32_t>, Plain<std::int32_t>>(op, target, operands, count);
    case DType::Float16:
    case DType::UInt8:
      break;
  }
  SW_CHECK(false, "{} cannot be reduced", to_text(dtype));
}

}  // namespace sw
