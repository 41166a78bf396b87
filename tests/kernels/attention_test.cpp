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

/// Keys in blocks in the order in which a ring of three brings them to its second rank, the zig-zag
/// order and packed documents: forward and gradients are those of all keys at once. Both sides
/// round to 2^-24 a few hundred times, on numbers of size one to eight.
TEST(Attention, OverBlocksOfKeysIsThatOverAllOfThem) {
  constexpr std::int64_t kRanks = 3;
  constexpr std::int64_t kChunk = 40;
  constexpr std::int64_t kKeys = 2 * kRanks * kChunk;
  constexpr std::int64_t kBlock = 2 * kChunk;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> documents;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    for (const std::int64_t chunk : {rank, 2 * kRanks - 1 - rank}) {
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const std::int64_t place = chunk * kChunk + i;
        positions.push_back(place < 70 ? place : place - 70);
        documents.push_back(place < 70 ? 0 : 1);
      }
    }
  }
  const auto cut = [](const Tensor& tensor, std::int64_t block) {
    const std::int64_t width = elements(tensor.shape) / kKeys;
    Shape shape = tensor.shape;
    shape[1] = kBlock;
    const auto begin = tensor.values.begin() + block * kBlock * width;
    return Tensor{shape, {begin, begin + kBlock * width}, tensor.dtype};
  };
  const Shape key{1, kKeys, 1, 16};
  const Shape query{1, kBlock, 2, 16};
  const Shape rows{1, kBlock, 2};
  const Tensor all_positions = integers({1, kKeys}, positions);
  const Tensor all_documents = integers({1, kKeys}, documents);
  const Tensor k = normals(key, 2);
  const Tensor v = normals(key, 3);
  const AttentionParameters p{.scale = 0.25, .heads_per_kv = 2, .window = 150};
  const std::int64_t mine = 1;
  const auto inputs = [&](const Tensor& keys, const Tensor& values, const Tensor& positions_k,
                          const Tensor& documents_k) {
    return std::vector<Tensor>{
        normals(query, 1),        keys,       values, cut(all_positions, mine), positions_k,
        cut(all_documents, mine), documents_k};
  };
  const auto inputs_of = [&](std::int64_t block) {
    return inputs(cut(k, block), cut(v, block), cut(all_positions, block),
                  cut(all_documents, block));
  };
  const auto call = [&](std::vector<Tensor> of, std::vector<Tensor> outputs, bool adds) {
    const char* op = of.size() == 7 ? "attention" : "attention_grad";
    OwnedCall made(op, p, std::move(of), std::move(outputs), DType::Float32, DType::Float32);
    made.call.accumulate.assign(made.call.outputs.size(), adds);
    made.run_cpu(2);
    return made;
  };
  const auto with_result = [&](std::vector<Tensor> of, const Values& result) {
    of.push_back({query, result[0]});
    of.push_back(float32({rows, result[1]}));
    of.push_back(normals(query, 4));
    return of;
  };

  const std::vector<Tensor> whole_inputs = inputs(k, v, all_positions, all_documents);
  const OwnedCall whole = call(whole_inputs, {zeros(query), float32(zeros(rows))}, false);
  Values result = {zeros(query).values, zeros(rows).values};
  for (std::int64_t hop = 0; hop < kRanks; ++hop) {
    const OwnedCall part = call(inputs_of((mine - hop + kRanks) % kRanks),
                                {{query, result[0]}, float32({rows, result[1]})}, hop > 0);
    result = {part.output(0), part.output(1)};
  }
  const auto expect_near = [](const std::vector<double>& a, const double* b, double bound) {
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << i;
  };
  const Values all = {whole.output(0), whole.output(1)};
  expect_near(result[0], all[0].data(), 2e-6);
  expect_near(result[1], all[1].data(), 4e-6);

  const OwnedCall whole_grad =
      call(with_result(whole_inputs, all), {zeros(query), zeros(key), zeros(key)}, false);
  std::vector<double> dq = zeros(query).values;
  const Shape part_of_key{1, kBlock, 1, 16};
  for (std::int64_t block = 0; block < kRanks; ++block) {
    const OwnedCall part = call(with_result(inputs_of(block), result),
                                {{query, dq}, zeros(part_of_key), zeros(part_of_key)}, true);
    dq = part.output(0);
    const std::int64_t from = block * elements(part_of_key);
    expect_near(part.output(1), whole_grad.output(1).data() + from, 1e-5);
    expect_near(part.output(2), whole_grad.output(2).data() + from, 1e-5);
  }
  expect_near(dq, whole_grad.output(0).data(), 1e-5);
}

/// Nothing seen yet, then nothing seen of this block: the state begins at -infinity and stays.
TEST(Attention, OverABlockThatNobodySeesIsWhatWasThere) {
  constexpr std::int64_t kS = 70;
  const Tensor ones = integers({1, kS}, std::vector<std::int64_t>(kS, 1));
  const Tensor first = integers({1, kS}, std::vector<std::int64_t>(kS, 0));
  OwnedCall call = attention_call(kS, {.scale = 0.25}, 1, 1, ones, first);
  call.call.accumulate = {false, false};
  call.run_cpu(2);  // o = 0, lse = -infinity
  call.call.accumulate = {true, true};
  call.run_cpu(2);
  for (const double lse : call.output(1)) ASSERT_EQ(lse, -kInfinity);
  for (const double o : call.output(0)) ASSERT_EQ(o, 0);
  OwnedCall seen = attention_call(kS, {.scale = 0.25}, 1, 1, ones, ones);
  seen.run_cpu(2);
  OwnedCall after = attention_call(kS, {.scale = 0.25}, 1, 1, ones, ones);
  after.call.outputs = call.call.outputs;
  after.call.accumulate = {true, true};
  after.run_cpu(2);
  EXPECT_EQ(call.output(0), seen.output(0));  // from -infinity: the first block
  EXPECT_EQ(call.output(1), seen.output(1));
  after.call.inputs[6] = call.call.inputs[6];
  after.run_cpu(2);
  EXPECT_EQ(call.output(0), seen.output(0));  // and a block that nobody sees leaves it
  EXPECT_EQ(call.output(1), seen.output(1));
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
  const auto is_bad = [](std::int64_t row) { return row == 0 || row == 5; };  // 0 sees itself alone
  for (std::int64_t row = 0; row < kS; ++row) {
    if (!is_bad(row)) continue;
    q.values[static_cast<std::size_t>(row * 16 + 3)] = std::numeric_limits<double>::quiet_NaN();
  }
  const Tensor positions = counted_positions(1, kS);
  OwnedCall call("attention", AttentionParameters{.scale = 0.25},
                 {q, normals({1, kS, 1, 16}, 2), normals({1, kS, 1, 16}, 3), positions, positions,
                  documents, documents},
                 {zeros({1, kS, 1, 16}), float32(zeros({1, kS, 1}))}, DType::Float32,
                 DType::Float32);
  call.run_cpu(1);
  for (std::int64_t row = 0; row < kS; ++row) {
    EXPECT_EQ(std::isnan(call.output(0)[static_cast<std::size_t>(row * 16)]), is_bad(row)) << row;
    EXPECT_EQ(std::isnan(call.output(1)[static_cast<std::size_t>(row)]), is_bad(row)) << row;
  }
}

}  // namespace
}  // namespace sw::kernels::testing
