#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/simd/rows.hpp"

namespace sw::kernels::cpu {
namespace {

/// What one thread needs: a query head and its gradients, and those of a KV head, in whole.
struct Space {
  Space(const Attention& a, Scratch& scratch)
      : q(scratch.take<float>(a.queries * a.padded)),
        d_o(scratch.take<float>(a.queries * a.padded)),
        dq(scratch.take<float>(a.queries * a.padded)),
        lse(scratch.take<float>(a.queries)),
        delta(scratch.take<float>(a.queries)),
        query(scratch.take<simd::Query>(a.queries)),
        dk(scratch.take<float>(a.keys * a.padded)),
        dv(scratch.take<float>(a.keys * a.padded)),
        keys(scratch.take<float>(simd::kKeys * a.padded)),
        keys_turned(scratch.take<float>(a.size * simd::kKeys)),
        values_turned(scratch.take<float>(a.size * simd::kKeys)),
        scores(scratch.take<float>(kQueries * simd::kKeys)),
        d_scores(scratch.take<float>(kQueries * simd::kKeys)) {}
  float* q;  ///< times the scale
  float* d_o;
  float* dq;
  float* lse;
  float* delta;  ///< sum over the head of do * o
  simd::Query* query;
  float* dk;
  float* dv;
  float* keys;           ///< [kKeys, padded]
  float* keys_turned;    ///< [size, kKeys]
  float* values_turned;  ///< [size, kKeys]
  float* scores;
  float* d_scores;
};

/// One sample's KV head per tile: its query heads one after the other, so that dk and dv are added
/// up in a fixed order.
struct Backward {
  Attention a;
  View o;
  const float* lse;
  View d_o;
  View dq;
  View dk;
  View dv;
  bool add_dq;
  bool add_dk;
  bool add_dv;
  std::vector<Space> spaces;

  void run_tile(std::int64_t b, std::int64_t kv_head, const Space& s) const {
    std::fill_n(s.dk, a.keys * a.padded, 0.0F);
    std::fill_n(s.dv, a.keys * a.padded, 0.0F);
    const Range heads = a.heads_of(kv_head);
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
      load_head(b, head, s);
      for (std::int64_t key = 0; key < a.keys; key += simd::kKeys) {
        add_keys(b, kv_head, key, std::min(simd::kKeys, a.keys - key), s);
      }
      simd::scale(s.dq, static_cast<float>(a.parameters.scale), s.dq, a.queries * a.padded);
      unpack(s.dq, dq, b, head, a.queries, add_dq);
    }
    unpack(s.dk, dk, b, kv_head, a.keys, add_dk);
    unpack(s.dv, dv, b, kv_head, a.keys, add_dv);
  }

  void load_head(std::int64_t b, std::int64_t head, const Space& s) const {
    simd::load_rows(a.rows_of(a.q, b, 0, head, a.queries), static_cast<float>(a.parameters.scale),
                    s.q, a.padded);
    simd::load_rows(a.rows_of(d_o, b, 0, head, a.queries), 1, s.d_o, a.padded);
    // o: into room that is free until the first product.
    simd::load_rows(a.rows_of(o, b, 0, head, a.queries), 1, s.dq, a.padded);
    for (std::int64_t i = 0; i < a.queries; ++i) {
      const float row_lse = lse[(b * a.queries + i) * a.heads + head];
      // A query that sees nothing has -infinity, and every weight hidden: any number will do.
      s.lse[i] = std::isinf(row_lse) ? 0.0F : row_lse;
      s.delta[i] = simd::dot(s.d_o + i * a.padded, s.dq + i * a.padded, a.size);
      s.query[i] = a.query(b, i);
    }
    std::fill_n(s.dq, a.queries * a.padded, 0.0F);
  }

  /// What keys [key, key + count) give to dq, and their dk and dv, from one query head.
  void add_keys(std::int64_t b, std::int64_t kv_head, std::int64_t key, std::int64_t count,
                const Space& s) const {
    const Reach reach = a.key_reach(b, key, count);
    const simd::KeyBlock block = a.key_block(b, key, count);
    const simd::StoredRows values = a.rows_of(a.v, b, key, kv_head, count);
    const simd::StoredRows keys = a.rows_of(a.k, b, key, kv_head, count);
    simd::load_rows(keys, 1, s.keys, a.padded);
    simd::turn_rows(keys, s.keys_turned, simd::kKeys);
    simd::turn_rows(values, s.values_turned, simd::kKeys);
    for (std::int64_t query = 0; query < a.queries; query += kQueries) {
      const std::int64_t rows = std::min(kQueries, a.queries - query);
      const Overlap overlap = a.overlap(a.query_reach(b, query, rows), reach, count);
      if (overlap == Overlap::None) continue;
      const bool full = overlap == Overlap::Full;
      const Sight sight = a.sight(b, query, rows, key, count, full);
      if (!full) {  // a group's range of queries may hold some that see none of its keys
        std::fill_n(s.scores, rows * simd::kKeys, 0.0F);
        std::fill_n(s.d_scores, rows * simd::kKeys, 0.0F);
      }
      for (std::int64_t i = 0; i < rows; i += sight.step) {
        const std::int64_t some = std::min(sight.step, rows - i);
        const Range seen = sight.keys[i / sight.step];
        if (seen.size() == 0) continue;
        float* scores = s.scores + i * simd::kKeys + seen.begin;
        float* d_scores = s.d_scores + i * simd::kKeys + seen.begin;
        multiply_turned(s.q + (query + i) * a.padded, s.keys_turned, some, seen, scores);
        multiply_turned(s.d_o + (query + i) * a.padded, s.values_turned, some, seen, d_scores);
        if (!full) simd::hide(scores, s.query + query + i, some, block, seen.begin, seen.size());
        simd::softmax_grad(scores, d_scores, some, seen.size(), s.lse + query + i,
                           s.delta + query + i);
      }
      for (std::int64_t i = 0; i < count; i += sight.step) {
        const std::int64_t some = std::min(sight.step, count - i);
        const Range seen = {sight.queries[i / sight.step].begin,
                            std::min(sight.queries[i / sight.step].end, rows)};
        add_turned(s.scores + i, s.d_o + query * a.padded, seen, some, s.dv + (key + i) * a.padded);
        add_turned(s.d_scores + i, s.q + query * a.padded, seen, some, s.dk + (key + i) * a.padded);
      }
      for (std::int64_t i = 0; i < rows; i += sight.step) {
        const Range seen = sight.keys[i / sight.step];
        simd::multiply({.rows = std::min(sight.step, rows - i),
                        .columns = a.padded,
                        .depth = std::min(seen.end, count) - seen.begin,
                        .a = s.d_scores + i * simd::kKeys + seen.begin,
                        .a_row = simd::kKeys,
                        .b = s.keys + seen.begin * a.padded,
                        .b_row = a.padded,
                        .c = s.dq + (query + i) * a.padded,
                        .c_row = a.padded,
                        .accumulate = true});
      }
    }
  }

  /// scores[rows, seen] = left[rows, size] right[size, seen].
  void multiply_turned(const float* left, const float* right, std::int64_t rows, Range seen,
                       float* scores) const {
    simd::multiply({.rows = rows,
                    .columns = seen.size(),
                    .depth = a.size,
                    .a = left,
                    .a_row = a.padded,
                    .b = right + seen.begin,
                    .b_row = simd::kKeys,
                    .c = scores,
                    .c_row = simd::kKeys});
  }

  /// sum[count, padded] += weights[seen, count]^T values[seen, padded].
  void add_turned(const float* weights, const float* values, Range seen, std::int64_t count,
                  float* sum) const {
    simd::multiply({.rows = count,
                    .columns = a.padded,
                    .depth = seen.size(),
                    .a = weights + seen.begin * simd::kKeys,
                    .a_row = 1,
                    .a_column = simd::kKeys,
                    .b = values + seen.begin * a.padded,
                    .b_row = a.padded,
                    .c = sum,
                    .c_row = a.padded,
                    .accumulate = true});
  }

  void unpack(const float* from, const View& to, std::int64_t b, std::int64_t head,
              std::int64_t count, bool add) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (b * count + i) * to.shape[2] + head;
      store(to, row * a.size, a.size, from + i * a.padded, add);
    }
  }
};

Prepared prepare_attention_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 10, 3);
  check_same_shape(call, call.inputs[7], call.inputs[0]);
  check_same_shape(call, call.inputs[9], call.inputs[0]);
  for (std::size_t i = 0; i < 3; ++i) check_same_shape(call, call.outputs[i], call.inputs[i]);
  Backward backward{.a = Attention(call),
                    .o = call.inputs[7],
                    .lse = floats(call.inputs[8]),
                    .d_o = call.inputs[9],
                    .dq = call.outputs[0],
                    .dk = call.outputs[1],
                    .dv = call.outputs[2],
                    .add_dq = accumulates(call, 0),
                    .add_dk = accumulates(call, 1),
                    .add_dv = accumulates(call, 2),
                    .spaces = {}};
  for (int thread = 0; thread < threads; ++thread) {
    backward.spaces.emplace_back(backward.a, scratch);
  }
  return [backward](Team& team) {
    const std::int64_t kv_heads = backward.a.kv_heads;
    for_tiles(team, backward.a.batch * kv_heads, [&](std::int64_t tile, int thread) {
      backward.run_tile(tile / kv_heads, tile % kv_heads, backward.spaces[thread]);
    });
  };
}

}  // namespace

std::vector<Operator> attention_grad_operators() {
  return {{"attention_grad", prepare_attention_grad}};
}

}  // namespace sw::kernels::cpu
