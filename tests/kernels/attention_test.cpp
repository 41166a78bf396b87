#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/cases.hpp"
#include "tests/kernels/tensors.hpp"

namespace sw::kernels::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A call with S queries and S keys of one sample, whatever the documents say.
OwnedCall attention_call(std::int64_t sequence, const AttentionParameters& parameters,
                         std::int64_t heads, std::int64_t kv_heads, const Tensor& documents_q,
                         const Tensor& documents_k) {
  const Shape q{1, sequence, heads, 16};
  const Shape k{1, sequence, kv_heads, 16};
  const Tensor positions = counted_positions(1, sequence);
  return {
      "attention",
      parameters,
      {normals(q, 1), normals(k, 2), normals(k, 3), positions, positions, documents_q, documents_k},
      {zeros(q), float32(zeros({1, sequence, heads}))},
      DType::Float32,
      DType::Float32};
}

TEST(Attention, OfARowThatSeesNothingIsZeroAndItsGradientToo) {
  constexpr std::int64_t kS = 70;
  std::vector<std::int64_t> documents(kS, 0);
  documents[3] = 9;  // a document without keys
  documents[68] = 9;
  const Tensor documents_q = integers({1, kS}, documents);
  const Tensor documents_k = integers({1, kS}, std::vector<std::int64_t>(kS, 0));
  OwnedCall call = attention_call(kS, {.scale = 0.25}, 1, 1, documents_q, documents_k);
  call.run_cpu(2);
  const auto o = call.output(0);
  const auto lse = call.output(1);
  for (std::int64_t row = 0; row < kS; ++row) {
    const bool nothing = row == 3 || row == 68;
    EXPECT_EQ(lse[static_cast<std::size_t>(row)] == -kInfinity, nothing);
    EXPECT_EQ(o[static_cast<std::size_t>(row * 16)] == 0, nothing);
  }

  const Shape shape{1, kS, 1, 16};
  std::vector<Tensor> inputs = {
      normals(shape, 1),          normals(shape, 2), normals(shape, 3), counted_positions(1, kS),
      counted_positions(1, kS),   documents_q,       documents_k,       {shape, o},
      float32({{1, kS, 1}, lse}), normals(shape, 4)};
  OwnedCall grad("attention_grad", AttentionParameters{.scale = 0.25}, inputs,
                 {zeros(shape), zeros(shape), zeros(shape)}, DType::Float32, DType::Float32);
  grad.run_cpu(2);
  for (std::size_t output = 0; output < 3; ++output) {
    for (const double value : grad.output(output)) ASSERT_TRUE(std::isfinite(value));
  }
  for (std::int64_t x = 0; x < 16; ++x) {
    EXPECT_EQ(grad.output(0)[static_cast<std::size_t>(3 * 16 + x)], 0);
  }
}

// A softmax over one key is 1 up to the rounding of exp and of a division.
TEST(Attention, OfTheFirstTokenIsItsOwnValue) {
  const Tensor documents = integers({1, 5}, {0, 0, 0, 0, 0});
  OwnedCall call = attention_call(5, {.scale = 0.25}, 2, 2, documents, documents);
  call.run_cpu(1);
  const Tensor v = normals({1, 5, 2, 16}, 3);
  for (std::size_t x = 0; x < 32; ++x) EXPECT_NEAR(call.output(0)[x], v.values[x], 1e-6);
}

// A document alone and the same document between others: blocks that are masked are as good as not
// there, to the bit.
TEST(Attention, OfADocumentDoesNotDependOnItsNeighbours) {
  constexpr std::int64_t kS = 256;
  std::vector<std::int64_t> documents(kS);
  for (std::int64_t i = 0; i < kS; ++i) documents[i] = i < 64 ? 0 : i < 192 ? 1 : 2;
  const Tensor packed = integers({1, kS}, documents);
  OwnedCall whole = attention_call(kS, {.scale = 0.25}, 1, 1, packed, packed);
  whole.run_cpu(1);

  const auto cut = [](const Tensor& tensor) {
    const std::int64_t width = elements(tensor.shape) / kS;
    Shape shape = tensor.shape;
    shape[1] = 128;
    return Tensor{shape,
                  {tensor.values.begin() + 64 * width, tensor.values.begin() + 192 * width},
                  tensor.dtype};
  };
  const Shape q{1, kS, 1, 16};
  const Tensor positions = cut(counted_positions(1, kS));
  const Tensor document = cut(packed);
  OwnedCall alone("attention", AttentionParameters{.scale = 0.25},
                  {cut(normals(q, 1)), cut(normals(q, 2)), cut(normals(q, 3)), positions, positions,
                   document, document},
                  {zeros({1, 128, 1, 16}), float32(zeros({1, 128, 1}))}, DType::Float32,
                  DType::Float32);
  alone.run_cpu(1);
  const auto all = whole.output(0);
  EXPECT_EQ(alone.output(0), std::vector<double>(all.begin() + 64 * 16, all.begin() + 192 * 16));
}

TEST(Attention, ReadsTheKvHeadOfTheWholeModel) {
  // Whole heads 2..5 with two per KV head, KV heads from 1 on: local heads 0, 1 read local KV head
  // 0, and 2, 3 read 1.
  const Tensor documents = integers({1, 9}, std::vector<std::int64_t>(9, 0));
  const AttentionParameters p{
      .scale = 0.25, .heads_per_kv = 2, .query_head_start = 2, .kv_head_start = 1};
  OwnedCall call = attention_call(9, p, 4, 2, documents, documents);
  call.run_cpu(2);
  const Tensor v = normals({1, 9, 2, 16}, 3);
  for (std::int64_t head = 0; head < 4; ++head) {
    for (std::int64_t x = 0; x < 16; ++x) {  // the first token sees itself alone
      EXPECT_NEAR(call.output(0)[static_cast<std::size_t>(head * 16 + x)],
                  v.values[static_cast<std::size_t>(head / 2 * 16 + x)], 1e-6);
    }
  }
}

TEST(Attention, LetsNotANumberThrough) {
  constexpr std::int64_t kS = 70;
  const Tensor documents = integers({1, kS}, std::vector<std::int64_t>(kS, 0));
  Tensor q = normals({1, kS, 1, 16}, 1);
  q.values[5 * 16 + 3] = std::numeric_limits<double>::quiet_NaN();
  const Tensor positions = counted_positions(1, kS);
  OwnedCall call("attention", AttentionParameters{.scale = 0.25},
                 {q, normals({1, kS, 1, 16}, 2), normals({1, kS, 1, 16}, 3), positions, positions,
                  documents, documents},
                 {zeros({1, kS, 1, 16}), float32(zeros({1, kS, 1}))}, DType::Float32,
                 DType::Float32);
  call.run_cpu(1);
  for (std::int64_t row = 0; row < kS; ++row) {
    EXPECT_EQ(std::isnan(call.output(0)[static_cast<std::size_t>(row * 16)]), row == 5) << row;
  }
}

}  // namespace
}  // namespace sw::kernels::testing
