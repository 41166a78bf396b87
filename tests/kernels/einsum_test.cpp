#include "kernels/einsum.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
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

// Small whole numbers are exact in float32 and in bfloat16: the product is a closed form whatever
// the order of additions. a[i, k] = i + k, b[j, k] = 1 gives K i + K (K - 1) / 2 in every column.
TEST(Einsum, IsExactOnSmallWholeNumbers) {
  constexpr std::int64_t kM = 300;
  constexpr std::int64_t kN = 501;
  constexpr std::int64_t kK = 9;
  Tensor a = zeros({kM, kK});
  for (std::int64_t i = 0; i < kM * kK; ++i) {
    a.values[static_cast<std::size_t>(i)] = static_cast<double>(i / kK % 100 + i % kK);
  }
  Tensor b = zeros({kN, kK});
  for (double& value : b.values) value = 1;
  for (const DType type : {DType::Float32, DType::BFloat16}) {
    OwnedCall call("einsum", EinsumParameters{"md,nd->mn"}, {a, b}, {zeros({kM, kN})}, type,
                   DType::Float32);
    call.run_cpu(2);
    const std::vector<double> c = call.output(0);
    for (std::int64_t i = 0; i < kM * kN; ++i) {
      const std::int64_t row = i / kN % 100;
      ASSERT_EQ(c[static_cast<std::size_t>(i)], static_cast<double>(kK * row + kK * (kK - 1) / 2));
    }
  }
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
