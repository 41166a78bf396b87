#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace sw::kernels::testing {
namespace {

constexpr std::int64_t kV = 2051;  // chunks of 1024, and a rest

std::vector<double> run_kernel(const std::string& op, const Parameters& parameters,
                               const std::vector<Tensor>& inputs, const Shape& output) {
  OwnedCall call(op, parameters, inputs, {zeros(output)}, DType::Float32, DType::Float32);
  call.run_cpu(2);
  return call.output(0);
}

// Rows of one number with the maximum 0: the exponential alone. It is good to about an ulp, and the
// sum is exact; below -87 nothing that a float32 sum near 1 could see.
TEST(SumExp, OfOneNumberIsItsExponential) {
  Tensor x{{1, 4001, 1}, {}};
  for (int i = 0; i <= 4000; ++i) x.values.push_back(-i / 40.0);
  const Shape rows{1, 4001};
  const auto found = run_kernel("sum_exp", {}, {x, zeros(rows)}, rows);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto stored = static_cast<double>(static_cast<float>(x.values[i]));
    const double expected = std::exp(stored);
    EXPECT_NEAR(found[i], expected, stored < -87 ? 2e-38 : expected * 0x1p-22) << x.values[i];
  }
}

// Softmax sums to 1 and the label takes 1 away: every row of the gradient sums to 0, wherever the
// label stands among the chunks. kV roundings of numbers below 1 leave less than kV * 2^-24.
TEST(LossGrad, SumsToZeroForALabelAnywhere) {
  const std::vector<std::int64_t> labels = {0, 1023, 1024, 2047, 2048, kV - 1};
  const Shape rows{1, 6};
  const Tensor logits = normals({1, 6, kV}, 1, 2);
  const Tensor most{rows, run_kernel("row_max", {}, {logits}, rows)};
  const Tensor sum{rows, run_kernel("sum_exp", {}, {logits, most}, rows)};
  const Tensor count{{}, {1}};
  const auto grad = run_kernel("loss_grad", VocabularyParameters{0},
                               {logits, most, sum, integers(rows, labels), count}, logits.shape);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto begin = grad.begin() + static_cast<std::int64_t>(row) * kV;
    EXPECT_NEAR(std::accumulate(begin, begin + kV, 0.0), 0, kV * 0x1p-24) << labels[row];
    for (std::int64_t column = 0; column < kV; ++column) {
      EXPECT_EQ(begin[column] < 0, column == labels[row]);
    }
  }
}

TEST(Loss, LetsNotANumberThrough) {
  const Shape rows{1, 3};
  for (const std::int64_t place : {0, 7, 1023, 1025, 2050}) {
    Tensor logits = normals({1, 3, kV}, 1);
    logits.values[static_cast<std::size_t>(kV + place)] = std::numeric_limits<double>::quiet_NaN();
    const auto most = run_kernel("row_max", {}, {logits}, rows);
    EXPECT_FALSE(std::isnan(most[0]));
    EXPECT_TRUE(std::isnan(most[1])) << place;
    EXPECT_FALSE(std::isnan(most[2]));
    const Tensor zero{rows, {0, 0, 0}};
    const auto sum = run_kernel("sum_exp", {}, {logits, zero}, rows);
    EXPECT_FALSE(std::isnan(sum[0]));
    EXPECT_TRUE(std::isnan(sum[1])) << place;
  }
}

TEST(Embedding, LeavesRowsBeyondThisRankAtZero) {
  const Tensor ids = integers({1, 3}, {99, 100, 103});
  const auto y =
      run_kernel("embedding", VocabularyParameters{100}, {ids, normals({3, 5}, 1)}, {1, 3, 5});
  EXPECT_EQ(y[0], 0);
  EXPECT_NE(y[5], 0);
  EXPECT_EQ(y[10], 0);
}

}  // namespace
}  // namespace sw::kernels::testing
