#include "comm/reduce.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace sw {
namespace {

template <typename T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> result(inputs[0].size());
  std::vector<const std::byte*> operands;
  for (const auto& input : inputs) {
    operands.push_back(reinterpret_cast<const std::byte*>(input.data()));
  }
  reduce_elements(dtype, op, reinterpret_cast<std::byte*>(result.data()), operands,
                  static_cast<std::int64_t>(result.size()));
  return result;
}

TEST(Reduce, Float32IsAddedInTheOrderOfTheOperands) {
  // 1e8 swallows a lone 1 in float32: (1e8 + 1) - 1e8 is 0, (1e8 - 1e8) + 1 is 1.
  const std::vector<float> big = {1e8F};
  const std::vector<float> small = {1.0F};
  const std::vector<float> minus = {-1e8F};
  EXPECT_EQ(reduced<float>(DType::Float32, ReduceOp::Sum, {big, small, minus})[0], 0.0F);
  EXPECT_EQ(reduced<float>(DType::Float32, ReduceOp::Sum, {big, minus, small})[0], 1.0F);
}

TEST(Reduce, BFloat16IsRoundedOnceAtTheEnd) {
  // 1 + 2^-8 lies between two bfloat16 numbers and would round to 1 each time; 1 + 2 * 2^-8 is one.
  const std::vector<BFloat16> one = {to_bfloat16(1.0F)};
  const std::vector<BFloat16> small = {to_bfloat16(std::ldexp(1.0F, -8))};
  const auto sum = reduced<BFloat16>(DType::BFloat16, ReduceOp::Sum, {one, small, small});
  EXPECT_EQ(to_float(sum[0]), 1.0F + std::ldexp(1.0F, -7));
}

TEST(Reduce, TheMaximumOfBFloat16IsOneOfTheOperands) {
  const std::vector<BFloat16> low = {{0xc0ab}, {0x3f81}};
  const std::vector<BFloat16> high = {{0xc0aa}, {0x3f80}};
  const auto result = reduced<BFloat16>(DType::BFloat16, ReduceOp::Max, {low, high});
  EXPECT_EQ(result[0], high[0]);
  EXPECT_EQ(result[1], low[1]);
}

TEST(Reduce, SignedIntegersWrapAround) {
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(reduced<std::int64_t>(DType::Int64, ReduceOp::Sum, {{kMax64}, {1}})[0], kMin64);
  EXPECT_EQ(reduced<std::int64_t>(DType::Int64, ReduceOp::Max, {{kMin64}, {-1}})[0], -1);
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduced<std::int32_t>(DType::Int32, ReduceOp::Sum, {{kMax32}, {1}, {0}})[0], kMin32);
}

TEST(Reduce, StreamedStoresLeaveTheSameAndNothingBeside) {
  std::vector<std::int32_t> left(1000);
  std::vector<std::int32_t> right(1000);
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<std::int32_t>(i);
    right[i] = static_cast<std::int32_t>(3 * i);
  }
  // Ends and beginnings within a vector, a cache line, and apart by whole ones.
  for (const std::size_t begin : {0U, 1U, 5U, 16U}) {
    for (const std::size_t count : {0U, 3U, 31U, 32U, 700U}) {
      for (const std::size_t operand_count : {1U, 2U}) {
        std::vector<std::int32_t> target(1000, -1);
        const std::array operands = {reinterpret_cast<const std::byte*>(left.data()),
                                     reinterpret_cast<const std::byte*>(right.data())};
        reduce_elements(DType::Int32, ReduceOp::Sum,
                        reinterpret_cast<std::byte*>(target.data() + begin),
                        std::span(operands).first(operand_count), static_cast<std::int64_t>(count),
                        Stores::Streamed);
        for (std::size_t i = 0; i < target.size(); ++i) {
          const bool written = i >= begin && i < begin + count;
          const auto sum = static_cast<std::int32_t>((operand_count == 2 ? 4 : 1) * (i - begin));
          ASSERT_EQ(target[i], written ? sum : -1) << i << " of " << count << " from " << begin;
        }
      }
    }
  }
}

TEST(Reduce, TheTargetMayBeAnyOperand) {
  for (std::size_t target = 0; target < 4; ++target) {
    // More than one block, and an odd rest.
    std::vector<std::vector<double>> inputs(4, std::vector<double>(2500));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      for (std::size_t i = 0; i < inputs[k].size(); ++i) {
        inputs[k][i] = static_cast<double>(i * 4 + k);
      }
    }
    std::array<const std::byte*, 4> operands{};
    for (std::size_t k = 0; k < 4; ++k) {
      operands[k] = reinterpret_cast<const std::byte*>(inputs[k].data());
    }
    reduce_elements(DType::Float64, ReduceOp::Sum,
                    reinterpret_cast<std::byte*>(inputs[target].data()), operands, 2500);
    for (std::size_t i = 0; i < 2500; ++i) {
      // 4i + 0, 1, 2, 3
      ASSERT_EQ(inputs[target][i], static_cast<double>(16 * i + 6));
    }
  }
}

}  // namespace
}  // namespace sw
