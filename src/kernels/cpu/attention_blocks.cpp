#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/simd/elementwise.hpp"

namespace sw::kernels::cpu {
namespace {

constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kHighest = std::numeric_limits<std::int32_t>::max();

void check_sizes(const Attention& a, const KernelCall& call) {
  const auto check_shape = [&call](std::size_t input, const Shape& expected) {
    SW_CHECK(call.inputs[input].shape == expected, "{}: input {} is {} and should be {}", call.op,
             input, to_text(call.inputs[input].shape), to_text(expected));
  };
  check_shape(0, {a.batch, a.queries, a.heads, a.size});
  check_shape(1, {a.batch, a.keys, a.kv_heads, a.size});
  check_shape(2, {a.batch, a.keys, a.kv_heads, a.size});
  check_shape(3, {a.batch, a.queries});
  check_shape(4, {a.batch, a.keys});
  check_shape(5, {a.batch, a.queries});
  check_shape(6, {a.batch, a.keys});
  for (std::int64_t head = 0; head < a.heads; ++head) {
    SW_CHECK(a.kv_head_of(head) >= 0 && a.kv_head_of(head) < a.kv_heads,
             "{}: query head {} needs KV head {} of {}", call.op, head, a.kv_head_of(head),
             a.kv_heads);
  }
}

}  // namespace

Reach reach_of(const std::int32_t* positions, const std::int32_t* documents, std::int64_t count) {
  const auto [p0, p1] = std::minmax_element(positions, positions + count);
  const auto [d0, d1] = std::minmax_element(documents, documents + count);
  return {*p0, *p1, *d0, *d1};
}

Attention::Attention(const KernelCall& call)
    : parameters(std::get<AttentionParameters>(call.parameters)),
      batch(call.inputs.at(0).shape.at(0)),
      queries(call.inputs[0].shape.at(1)),
      heads(call.inputs[0].shape.at(2)),
      size(call.inputs[0].shape.at(3)),
      keys(call.inputs.at(1).shape.at(1)),
      kv_heads(call.inputs[1].shape.at(2)),
      padded(round_up(size, simd::kColumnGroup)),
      q(call.inputs[0]),
      k(call.inputs[1]),
      v(call.inputs.at(2)),
      positions_q(integers(call.inputs.at(3))),
      positions_k(integers(call.inputs.at(4))),
      documents_q(integers(call.inputs.at(5))),
      documents_k(integers(call.inputs.at(6))) {
  check_sizes(*this, call);
}

std::int64_t Attention::kv_head_of(std::int64_t head) const {
  return (parameters.query_head_start + head) / parameters.heads_per_kv - parameters.kv_head_start;
}

Range Attention::heads_of(std::int64_t kv_head) const {
  const std::int64_t first =
      (parameters.kv_head_start + kv_head) * parameters.heads_per_kv - parameters.query_head_start;
  const std::int64_t begin = std::clamp<std::int64_t>(first, 0, heads);
  return {begin, std::clamp<std::int64_t>(first + parameters.heads_per_kv, begin, heads)};
}

simd::Query Attention::query(std::int64_t b, std::int64_t index) const {
  const std::int32_t position = positions_q[b * queries + index];
  const std::int64_t lowest = parameters.window > 0 ? position - parameters.window : kLowest;
  return {position, documents_q[b * queries + index],
          static_cast<std::int32_t>(std::max<std::int64_t>(lowest, kLowest))};
}

Reach Attention::query_reach(std::int64_t b, std::int64_t first, std::int64_t count) const {
  const std::int64_t at = b * queries + first;
  return reach_of(positions_q + at, documents_q + at, count);
}

Reach Attention::key_reach(std::int64_t b, std::int64_t first, std::int64_t count) const {
  const std::int64_t at = b * keys + first;
  return reach_of(positions_k + at, documents_k + at, count);
}

simd::KeyBlock Attention::key_block(std::int64_t b, std::int64_t first, std::int64_t count) const {
  simd::KeyBlock block;
  for (std::int64_t i = 0; i < simd::kKeys; ++i) {
    const std::int64_t at = b * keys + first + i;
    block.position[i] = i < count ? positions_k[at] : kHighest;  // beyond every query
    block.document[i] = i < count ? documents_k[at] : 0;
  }
  return block;
}

Overlap Attention::overlap(const Reach& query, const Reach& key, std::int64_t count) const {
  const std::int64_t window =
      parameters.window > 0 ? parameters.window : std::numeric_limits<std::int64_t>::max() / 2;
  if (key.first_position > query.last_position || key.last_document < query.first_document ||
      key.first_document > query.last_document ||
      key.last_position <= query.first_position - window) {
    return Overlap::None;
  }
  const bool same_document = query.first_document == query.last_document &&
                             key.first_document == key.last_document &&
                             key.first_document == query.first_document;
  const bool all_seen = key.last_position <= query.first_position &&
                        key.first_position > query.last_position - window;
  return count == simd::kKeys && same_document && all_seen ? Overlap::Full : Overlap::Part;
}

Sight Attention::sight(std::int64_t b, std::int64_t query, std::int64_t rows, std::int64_t key,
                       std::int64_t count, bool full) const {
  Sight sight;
  if (full) {
    sight.step = kQueries;
    sight.keys[0] = {0, simd::kKeys};
    sight.queries[0] = {0, round_up(rows, kGroup)};
    return sight;
  }
  const auto include = [](Range& range, std::int64_t group) {
    if (range.size() == 0) range.begin = group * kGroup;
    range.end = (group + 1) * kGroup;
  };
  Reach key_groups[kQueries / kGroup];
  for (std::int64_t i = 0; i * kGroup < count; ++i) {
    key_groups[i] = key_reach(b, key + i * kGroup, std::min(kGroup, count - i * kGroup));
  }
  for (std::int64_t j = 0; j * kGroup < rows; ++j) {
    const Reach query_group =
        query_reach(b, query + j * kGroup, std::min(kGroup, rows - j * kGroup));
    for (std::int64_t i = 0; i * kGroup < count; ++i) {
      if (overlap(query_group, key_groups[i], count) == Overlap::None) continue;
      include(sight.keys[j], i);
      include(sight.queries[i], j);
    }
  }
  return sight;
}

simd::StoredRows Attention::rows_of(const View& view, std::int64_t b, std::int64_t first,
                                    std::int64_t head, std::int64_t count) const {
  const std::int64_t at = ((b * view.shape[1] + first) * view.shape[2] + head) * size;
  return {.data = view.data + at * size_of(view.dtype),
          .dtype = view.dtype,
          .row = view.shape[2] * size,
          .count = count,
          .size = size};
}

}  // namespace sw::kernels::cpu
