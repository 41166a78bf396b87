#pragma once

#include <cstdint>

#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/blocks.hpp"
#include "kernels/cpu/views.hpp"

/// What the forward and the backward of attention share: sizes, who sees whom, and the packing of
/// rows into float32 blocks.
namespace sw::kernels::cpu {

/// Queries of a block.
inline constexpr std::int64_t kQueries = 64;

/// How much of a block of keys a block of queries sees.
enum class Overlap { None, Part, Full };

/// Bounds of the positions and documents of some rows.
struct Reach {
  std::int32_t first_position;
  std::int32_t last_position;
  std::int32_t first_document;
  std::int32_t last_document;
};
[[nodiscard]] Reach reach_of(const std::int32_t* positions, const std::int32_t* documents,
                             std::int64_t count);

/// Queries, or keys, of a group: what a mask hides of a block is skipped by groups.
inline constexpr std::int64_t kGroup = simd::kColumnGroup;
static_assert(simd::kKeys == kQueries && kQueries % kGroup == 0);

/// Who sees whom in a block: for every `step` queries the keys that they may see, for every `step`
/// keys the queries that may see them. Ranges are multiples of kGroup, possibly empty.
struct Sight {
  std::int64_t step = kGroup;
  Range keys[kQueries / kGroup];
  Range queries[kQueries / kGroup];
};

/// The seven inputs of a call.
struct Attention {
  explicit Attention(const KernelCall& call);

  /// Query heads [begin, end) of this rank that read local KV head `kv_head`.
  [[nodiscard]] Range heads_of(std::int64_t kv_head) const;
  [[nodiscard]] std::int64_t kv_head_of(std::int64_t head) const;
  /// Queries and keys `first` and following in sample `b`; `count` keys of a block.
  [[nodiscard]] simd::Query query(std::int64_t b, std::int64_t index) const;
  [[nodiscard]] Reach query_reach(std::int64_t b, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Reach key_reach(std::int64_t b, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] simd::KeyBlock key_block(std::int64_t b, std::int64_t first,
                                         std::int64_t count) const;
  [[nodiscard]] Overlap overlap(const Reach& query, const Reach& key, std::int64_t count) const;

  /// Of `rows` queries from `query` on and `count` keys from `key` on; `full`: all see all.
  [[nodiscard]] Sight sight(std::int64_t b, std::int64_t query, std::int64_t rows, std::int64_t key,
                            std::int64_t count, bool full) const;

  /// Rows `first` and following of a head of `view` ([batch, length, heads, size]).
  [[nodiscard]] simd::StoredRows rows_of(const View& view, std::int64_t b, std::int64_t first,
                                         std::int64_t head, std::int64_t count) const;

  AttentionParameters parameters;
  std::int64_t batch;
  std::int64_t queries;  ///< per sample
  std::int64_t heads;
  std::int64_t size;  ///< of a head
  std::int64_t keys;  ///< per sample
  std::int64_t kv_heads;
  std::int64_t padded;  ///< size rounded up to whole column groups
  View q;
  View k;
  View v;
  const std::int32_t* positions_q;
  const std::int32_t* positions_k;
  const std::int32_t* documents_q;
  const std::int32_t* documents_k;
};

}  // namespace sw::kernels::cpu
