#include "kernels/cpu/product.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/kernels/tensors.hpp"

// Products of bfloat16 packed in pairs. On a machine without an instruction for pairs these tests
// alone use them, in two multiplications that do what the instruction is defined to do.

namespace sw::kernels::testing {
namespace {

using cpu::Listed;
using simd::Factors;

/// Two operands of bfloat16, in memory that ends where they do.
class Operands {
 public:
  explicit Operands(const MatrixProduct& product)
      : Operands(product,
                 normals(product.a_transposed ? Shape{product.k, product.m}
                                              : Shape{product.m, product.k},
                         1),
                 normals(product.b_transposed ? Shape{product.n, product.k}
                                              : Shape{product.k, product.n},
                         2)) {}
  Operands(const MatrixProduct& product, const Tensor& a, const Tensor& b)
      : product_(product), a_(stored(a, DType::BFloat16)), b_(stored(b, DType::BFloat16)) {}

  /// Bytes of [m, n], of 0.5 before; of `listed` rows alone.
  [[nodiscard]] std::vector<std::byte> result(Factors factors, DType type, bool add,
                                              Listed listed = Listed::None,
                                              const std::vector<std::int32_t>& rows = {}) {
    Tensor before = zeros({product_.m, product_.n});
    before.values.assign(before.values.size(), 0.5);
    std::vector<std::byte> c = stored(before, type);
    const auto prepared = [&](cpu::Scratch& scratch) {
      return cpu::Product(product_, {a_.data(), DType::BFloat16, {}},
                          {b_.data(), DType::BFloat16, {}}, {c.data(), type, {}}, add, scratch,
                          kThreads, listed, factors);
    };
    cpu::Scratch counted(nullptr);
    (void)prepared(counted);
    std::vector<std::byte> memory(static_cast<std::size_t>(counted.used()) + 64, std::byte{0xff});
    void* aligned = memory.data();
    std::size_t space = memory.size();
    std::align(64, static_cast<std::size_t>(counted.used()), aligned, space);
    cpu::Scratch scratch(static_cast<std::byte*>(aligned));
    const cpu::Product product = prepared(scratch);
    Team team(kThreads);
    if (listed == Listed::None) {
      product.run(team);
    } else {
      product.of(rows.data(), static_cast<std::int64_t>(rows.size()), 0).run(team);
    }
    return c;
  }

  void expect_same_bits(Listed listed = Listed::None, const std::vector<std::int32_t>& rows = {}) {
    for (const DType type : {DType::Float32, DType::BFloat16}) {
      for (const bool add : {false, true}) {
        EXPECT_TRUE(result(Factors::Pairs, type, add, listed, rows) ==
                    result(Factors::Floats, type, add, listed, rows))
            << fmt::format("{}{} of {} x {} x {}, {}, {} rows listed, added: {}",
                           product_.a_transposed ? "km" : "mk", product_.b_transposed ? "nk" : "kn",
                           product_.m, product_.n, product_.k, to_text(type), rows.size(), add);
      }
    }
  }

 private:
  static constexpr int kThreads = 2;
  MatrixProduct product_;
  std::vector<std::byte> a_;
  std::vector<std::byte> b_;
};

// Odd sums; odd rows, so that pairs lie anywhere; rests of strips; several passes, blocks of
// columns and blocks of k.
TEST(PairsOfBFloat16, HaveTheBitsOfFloatsInEveryTransposition) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {5, 17, 3},
                                {6, 64, 2},
                                {103, 131, 21},
                                {13, 70, 385},
                                {7, 1500, 701},
                                {50, 75, 2601}}) {
    for (const int turned : {0, 1, 2, 3}) {
      Operands({.m = m,
                .n = n,
                .k = k,
                .a_transposed = (turned & 1) != 0,
                .b_transposed = (turned & 2) != 0})
          .expect_same_bits();
    }
  }
}

TEST(PairsOfBFloat16, HaveTheBitsOfFloatsOverListedRows) {
  const std::vector<std::int32_t> some = {0, 3, 4, 9, 20, 33, 34, 57, 90, 91, 100};
  Operands forward({.m = 101, .n = 71, .k = 387, .b_transposed = true});
  Operands input_gradient({.m = 101, .n = 71, .k = 387});
  Operands weight_gradient({.m = 71, .n = 133, .k = 101, .a_transposed = true});
  for (const std::ptrdiff_t count : {1, 2, 7, 11}) {
    const std::vector<std::int32_t> rows(some.end() - count, some.end());
    forward.expect_same_bits(Listed::M, rows);
    input_gradient.expect_same_bits(Listed::M, rows);
    weight_gradient.expect_same_bits(Listed::K, rows);
  }
  // Several passes and blocks of listed k.
  std::vector<std::int32_t> many;
  for (std::int32_t row = 0; row < 2900; ++row) {
    if (row % 7 != 3) many.push_back(row);
  }
  Operands({.m = 31, .n = 45, .k = 2900, .a_transposed = true}).expect_same_bits(Listed::K, many);
}

// 1 + 2^24 is rounded to 2^24, and 1 - 2^24 is exact.
TEST(PairsOfBFloat16, AreAddedFirstNumberFirst) {
  const double large = 1 << 24;
  const auto sum = [](const std::vector<double>& a) {
    const auto k = static_cast<std::int64_t>(a.size());
    Operands operands({.k = k}, {{1, k}, a}, {{k, 1}, std::vector<double>(a.size(), 1.0)});
    return loaded(operands.result(Factors::Pairs, DType::Float32, false), DType::Float32)[0];
  };
  EXPECT_EQ(sum({1, 0, large, -large}), 0);
  EXPECT_EQ(sum({1, 0, -large, large}), 1);
  EXPECT_EQ(sum({1, 0, -large, large, 3}), 4);
}

// In double products of bfloat16 are exact; in float32 each addition is off by at most 2^-24 of a
// sum, which is at most that of the magnitudes.
TEST(PairsOfBFloat16, AddUpToTheSumInDouble) {
  constexpr std::int64_t kM = 13;
  constexpr std::int64_t kN = 131;
  constexpr std::int64_t kK = 385;
  const Tensor a = normals({kM, kK}, 1);
  const Tensor b = normals({kN, kK}, 2);
  Operands operands({.m = kM, .n = kN, .k = kK, .b_transposed = true}, a, b);
  const std::vector<double> c =
      loaded(operands.result(Factors::Pairs, DType::Float32, true), DType::Float32);
  for (std::int64_t i = 0; i < kM; ++i) {
    for (std::int64_t j = 0; j < kN; ++j) {
      double sum = 0.5;
      double magnitudes = 0.5;
      for (std::int64_t k = 0; k < kK; ++k) {
        const double product = a.values[static_cast<std::size_t>(i * kK + k)] *
                               b.values[static_cast<std::size_t>(j * kK + k)];
        sum += product;
        magnitudes += std::abs(product);
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(i * kN + j)], sum, (kK + 1) * magnitudes / (1 << 24));
    }
  }
}

// A plan may be made on another machine than the run.
TEST(PairsOfBFloat16, TakeTheScratchOfFloats) {
  const View view{nullptr, DType::BFloat16, {}};
  for (const Listed listed : {Listed::None, Listed::K}) {
    const auto bytes = [&](Factors factors) {
      cpu::Scratch scratch(nullptr);
      (void)cpu::Product({.m = 50, .n = 75, .k = 2601, .a_transposed = true}, view, view, view,
                         false, scratch, 2, listed, factors);
      return scratch.used();
    };
    EXPECT_EQ(bytes(Factors::Pairs), bytes(Factors::Floats));
  }
}

}  // namespace
}  // namespace sw::kernels::testing
