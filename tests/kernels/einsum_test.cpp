#include "kernels/einsum.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/cpu/product.hpp"
#include "tests/kernels/tensors.hpp"

namespace sw::kernels::testing {
namespace {

TEST(MatrixProduct, SeesOneProductInTheLetters) {
  const MatrixProduct p = matrix_product("bsd,hkd->bshk", {2, 3, 5}, {7, 4, 5}, {2, 3, 7, 4});
  EXPECT_EQ(p.m, 6);
  EXPECT_EQ(p.n, 28);
  EXPECT_EQ(p.k, 5);
  EXPECT_FALSE(p.a_transposed);
  EXPECT_TRUE(p.b_transposed);
  EXPECT_FALSE(p.result_transposed);
}

TEST(MatrixProduct, SeesTransposedOperandsAndResults) {
  const MatrixProduct p = matrix_product("bsd,bshk->hkd", {2, 3, 5}, {2, 3, 7, 4}, {7, 4, 5});
  EXPECT_EQ(p.m, 5);
  EXPECT_EQ(p.n, 28);
  EXPECT_EQ(p.k, 6);
  EXPECT_TRUE(p.a_transposed);
  EXPECT_FALSE(p.b_transposed);
  EXPECT_TRUE(p.result_transposed);
}

TEST(MatrixProduct, AllowsAPairWithoutLetters) {
  const MatrixProduct p = matrix_product("d,dv->v", {5}, {5, 7}, {7});
  EXPECT_EQ(p.m, 1);
  EXPECT_EQ(p.n, 7);
  EXPECT_EQ(p.k, 5);
}

TEST(MatrixProduct, RefusesWhatIsNoPlainProduct) {
  // A letter in three places, in one place, in another order, apart, of two sizes, twice in one.
  EXPECT_THROW((void)matrix_product("bsd,bdk->bsk", {2, 3, 5}, {2, 5, 4}, {2, 3, 4}),
               InternalError);
  EXPECT_THROW((void)matrix_product("sd,dk->s", {3, 5}, {5, 4}, {3}), InternalError);
  EXPECT_THROW((void)matrix_product("bsd,hkd->sbhk", {2, 3, 5}, {7, 4, 5}, {3, 2, 7, 4}),
               InternalError);
  EXPECT_THROW((void)matrix_product("bds,dk->bsk", {2, 5, 3}, {5, 4}, {2, 3, 4}), InternalError);
  EXPECT_THROW((void)matrix_product("sd,dk->sk", {3, 5}, {6, 4}, {3, 4}), InternalError);
  EXPECT_THROW((void)matrix_product("ss,sk->sk", {3, 3}, {3, 4}, {3, 4}), InternalError);
  EXPECT_THROW((void)matrix_product("sd dk->sk", {3, 5}, {5, 4}, {3, 4}), InternalError);
  EXPECT_THROW((void)matrix_product("sd,dk->sk", {3}, {5, 4}, {3, 4}), InternalError);
}

// Small whole numbers are exact in float32 whatever the order of additions, so that the product is
// a closed form: with a[i, k] = i % 7 + k % 11 and b[j, k] = j % 5 + k % 7,
// sum over k of a b = K ai bj + ai B + bj A + AB, where A, B, AB sum k % 11, k % 7 and their
// product.
struct WholeNumbers {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;

  [[nodiscard]] static double a(std::int64_t i, std::int64_t l) {
    return static_cast<double>(i % 7 + l % 11);
  }
  [[nodiscard]] static double b(std::int64_t j, std::int64_t l) {
    return static_cast<double>(j % 5 + l % 7);
  }
  /// The result for i < 7, j < 5, by rows; it repeats.
  [[nodiscard]] std::vector<double> period() const {
    std::vector<double> sums(35, 0.0);
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t i = 0; i < 35; ++i) {
        sums[static_cast<std::size_t>(i)] += a(i / 5, l) * b(i % 5, l);
      }
    }
    return sums;
  }
};

template <typename Value>
Tensor filled(std::int64_t rows, std::int64_t columns, bool transposed, const Value& value) {
  Tensor result = zeros(transposed ? Shape{columns, rows} : Shape{rows, columns});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = transposed ? j * rows + i : i * columns + j;
      result.values[static_cast<std::size_t>(at)] = value(i, j);
    }
  }
  return result;
}

void expect_exact(const WholeNumbers& sizes, bool a_turned, bool b_turned, bool c_turned,
                  DType input, DType output, bool accumulate) {
  const auto& [m, n, k] = sizes;
  const std::string spec = std::string(a_turned ? "km" : "mk") + (b_turned ? ",nk->" : ",kn->") +
                           (c_turned ? "nm" : "mn");
  static constexpr double kBefore = 3;
  const Tensor before = filled(m, n, c_turned, [](auto...) { return kBefore; });
  OwnedCall call(
      "einsum", EinsumParameters{spec},
      {filled(m, k, a_turned, WholeNumbers::a), filled(n, k, !b_turned, WholeNumbers::b)}, {before},
      input, output);
  call.call.accumulate = {accumulate};
  call.run_cpu(2);
  const std::vector<double> period = sizes.period();
  const std::vector<double> c = call.output(0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const double sum = period[static_cast<std::size_t>(i % 7 * 5 + j % 5)];
      const double exact = sum + (accumulate ? kBefore : 0);
      const double expected =
          output == DType::Float32 ? exact : to_float(to_bfloat16(static_cast<float>(exact)));
      const std::int64_t at = c_turned ? j * m + i : i * n + j;
      ASSERT_EQ(c[static_cast<std::size_t>(at)], expected)
          << spec << " " << m << " x " << n << " x " << k << " at " << i << ", " << j;
    }
  }
}

TEST(Einsum, IsExactOnWholeNumbersInEveryTransposition) {
  for (const WholeNumbers sizes : {WholeNumbers{1, 1, 1}, {5, 17, 3}, {103, 131, 21}}) {
    for (const int turned : {0, 1, 2, 3, 4, 5, 6, 7}) {
      for (const DType type : {DType::Float32, DType::BFloat16}) {
        for (const bool accumulate : {false, true}) {
          expect_exact(sizes, (turned & 1) != 0, (turned & 2) != 0, (turned & 4) != 0, type, type,
                       accumulate);
        }
      }
    }
  }
}

// Several passes, blocks of columns, of k, and of rows of a bfloat16 result: what `cut_of` makes of
// these sizes. A bfloat16 result that was rounded between blocks of k would not be exact.
TEST(Einsum, IsExactOnWholeNumbersHoweverItIsCut) {
  for (const WholeNumbers sizes :
       {WholeNumbers{100, 70, 1000}, {7, 1500, 700}, {200, 75, 3700}, {3600, 300, 1601}}) {
    for (const DType output : {DType::Float32, DType::BFloat16}) {
      for (const bool accumulate : {false, true}) {
        expect_exact(sizes, false, true, false, DType::BFloat16, output, accumulate);
      }
    }
  }
}

// Two tiles, one of few rows: whoever has that one is soon at the other's tile of the next block of
// k, whose sums come after.
TEST(Einsum, HasTheSameBitsHoweverFarThreadsAreApart) {
  for (const DType output : {DType::Float32, DType::BFloat16}) {
    OwnedCall call("einsum", EinsumParameters{"mk,nk->mn"},
                   {normals({60, 9000}, 1), normals({120, 9000}, 2)}, {zeros({60, 120})},
                   DType::Float32, output);
    call.run_cpu(1);
    const std::vector<double> alone = call.output(0);
    for (int round = 0; round < 50; ++round) {
      call.run_cpu(3);
      ASSERT_EQ(call.output(0), alone) << round;
    }
  }
}

TEST(ProductCut, CutsEverySizeItsTestsName) {
  const auto blocks = [](std::int64_t m, std::int64_t n, std::int64_t k, bool sums = true) {
    const cpu::ProductCut cut = cpu::cut_of(m, n, k, sums);
    const auto parts = [](std::int64_t size, std::int64_t part) {
      return (size + part - 1) / part;
    };
    return std::vector<std::int64_t>{parts(m, cut.block_rows), parts(n, cut.block_columns),
                                     parts(k, cut.block_k), parts(cut.block_k, cut.pass_k)};
  };
  EXPECT_EQ(blocks(100, 70, 1000), (std::vector<std::int64_t>{1, 1, 1, 3}));
  EXPECT_EQ(blocks(7, 1500, 700), (std::vector<std::int64_t>{1, 3, 1, 2}));
  EXPECT_EQ(blocks(200, 75, 3700), (std::vector<std::int64_t>{1, 1, 4, 3}));
  EXPECT_EQ(blocks(60, 120, 9000), (std::vector<std::int64_t>{1, 1, 8, 3}));
  EXPECT_EQ(blocks(3600, 300, 1601), (std::vector<std::int64_t>{2, 1, 2, 3}));
  EXPECT_EQ(blocks(3600, 300, 1601, false), (std::vector<std::int64_t>{1, 1, 2, 3}));
  EXPECT_EQ(blocks(16000, 300, 1601, false), (std::vector<std::int64_t>{2, 1, 2, 3}));
}

TEST(Einsum, OverNoElementsIsZeroOrLeavesWhatIsThere) {
  for (const bool accumulate : {false, true}) {
    Tensor c = zeros({2, 3});
    c.values.assign(6, 5.0);
    OwnedCall call("einsum", EinsumParameters{"md,nd->mn"}, {zeros({2, 0}), zeros({3, 0})}, {c},
                   DType::Float32, DType::Float32);
    call.call.accumulate = {accumulate};
    call.run_cpu(1);
    EXPECT_EQ(call.output(0), std::vector<double>(6, accumulate ? 5.0 : 0.0));
  }
}

}  // namespace
}  // namespace sw::kernels::testing
