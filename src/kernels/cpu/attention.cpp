#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernels/cpu/simd/elementwise.hpp"

namespace sw::kernels::cpu {
namespace {

/// Queries of a tile: so many share the packing of a block of keys.
constexpr std::int64_t kTileQueries = 8 * kQueries;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What one thread needs: a tile's queries and outputs, one block of keys and values.
struct Space {
  Space(const Attention& a, Scratch& scratch)
      : q(scratch.take<float>(kTileQueries * a.padded)),
        output(scratch.take<float>(kTileQueries * a.padded)),
        most(scratch.take<float>(kTileQueries)),
        sum(scratch.take<float>(kTileQueries)),
        query(scratch.take<simd::Query>(kTileQueries)),
        keys(scratch.take<float>(a.size * simd::kKeys)),
        values(scratch.take<float>(simd::kKeys * a.padded)),
        scores(scratch.take<float>(kQueries * simd::kKeys)) {}
  float* q;
  float* output;
  float* most;
  float* sum;
  simd::Query* query;
  float* keys;    ///< [size, kKeys]
  float* values;  ///< [kKeys, padded]
  float* scores;
};

/// Some queries of one head.
struct Tile {
  std::int64_t b;
  std::int64_t head;
  std::int64_t first;
  std::int64_t count;
};

struct Forward {
  Attention a;
  View o;
  float* lse;
  bool goes_on;  ///< from what o and lse say of other keys
  std::vector<Space> spaces;

  void run_tile(const Tile& tile, const Space& s) const {
    simd::load_rows(a.rows_of(a.q, tile.b, tile.first, tile.head, tile.count),
                    static_cast<float>(a.parameters.scale), s.q, a.padded);
    begin(tile, s);
    for (std::int64_t i = 0; i < tile.count; ++i) s.query[i] = a.query(tile.b, tile.first + i);
    for (std::int64_t key = 0; key < a.keys; key += simd::kKeys) {
      add_keys(tile, key, std::min(simd::kKeys, a.keys - key), s);
    }
    write(tile, s);
  }

  /// The running softmax before the first key. A finished one is a running one with the sum 1.
  void begin(const Tile& tile, const Space& s) const {
    if (!goes_on) {
      std::fill_n(s.output, tile.count * a.padded, 0.0F);
      std::fill_n(s.most, tile.count, -kInfinity);
      std::fill_n(s.sum, tile.count, 0.0F);
      return;
    }
    simd::load_rows(a.rows_of(o, tile.b, tile.first, tile.head, tile.count), 1, s.output, a.padded);
    for (std::int64_t i = 0; i < tile.count; ++i) {
      s.most[i] = lse[(tile.b * a.queries + tile.first + i) * a.heads + tile.head];
      s.sum[i] = s.most[i] == -kInfinity ? 0.0F : 1.0F;
    }
  }

  /// Lets every block of queries see keys [key, key + count).
  void add_keys(const Tile& tile, std::int64_t key, std::int64_t count, const Space& s) const {
    const Reach reach = a.key_reach(tile.b, key, count);
    if (a.overlap(a.query_reach(tile.b, tile.first, tile.count), reach, count) == Overlap::None) {
      return;
    }
    const std::int64_t kv_head = a.kv_head_of(tile.head);
    simd::turn_rows(a.rows_of(a.k, tile.b, key, kv_head, count), s.keys, simd::kKeys);
    simd::load_rows(a.rows_of(a.v, tile.b, key, kv_head, count), 1, s.values, a.padded);
    const simd::KeyBlock block = a.key_block(tile.b, key, count);
    for (std::int64_t query = 0; query < tile.count; query += kQueries) {
      const std::int64_t rows = std::min(kQueries, tile.count - query);
      const Overlap overlap =
          a.overlap(a.query_reach(tile.b, tile.first + query, rows), reach, count);
      if (overlap == Overlap::None) continue;
      const bool full = overlap == Overlap::Full;
      const Sight sight = a.sight(tile.b, tile.first + query, rows, key, count, full);
      for (std::int64_t i = 0; i < rows; i += sight.step) {
        const Range seen = sight.keys[i / sight.step];
        if (seen.size() == 0) continue;
        const std::int64_t some = std::min(sight.step, rows - i);
        float* scores = s.scores + i * simd::kKeys;
        simd::multiply({.rows = some,
                        .columns = seen.size(),
                        .depth = a.size,
                        .a = s.q + (query + i) * a.padded,
                        .a_row = a.padded,
                        .b = s.keys + seen.begin,
                        .b_row = simd::kKeys,
                        .c = scores,
                        .c_row = simd::kKeys});
        if (!full) simd::hide(scores, s.query + query + i, some, block, seen.begin, seen.size());
        float* output = s.output + (query + i) * a.padded;
        simd::softmax_step(scores, some, seen.size(), s.most + query + i, s.sum + query + i, output,
                           a.padded);
        simd::multiply({.rows = some,
                        .columns = a.padded,
                        .depth = std::min(seen.end, count) - seen.begin,
                        .a = scores,
                        .a_row = simd::kKeys,
                        .b = s.values + seen.begin * a.padded,
                        .b_row = a.padded,
                        .c = output,
                        .c_row = a.padded,
                        .accumulate = true});
      }
    }
  }

  void write(const Tile& tile, const Space& s) const {
    for (std::int64_t i = 0; i < tile.count; ++i) {
      const std::int64_t row = (tile.b * a.queries + tile.first + i) * a.heads + tile.head;
      float* output = s.output + i * a.padded;
      const bool sees_nothing = s.sum[i] == 0;
      simd::scale(output, sees_nothing ? 0.0F : 1.0F / s.sum[i], output, a.size);
      store(o, row * a.size, a.size, output, false);
      lse[row] = sees_nothing ? -kInfinity : s.most[i] + std::log(s.sum[i]);
    }
  }
};

Prepared prepare_attention(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 7, 2);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const bool goes_on = accumulates(call, 0);
  SW_CHECK(goes_on == accumulates(call, 1), "attention: o and lse accumulate together");
  Forward forward{Attention(call), call.outputs[0], floats(call.outputs[1]), goes_on, {}};
  for (int thread = 0; thread < threads; ++thread) forward.spaces.emplace_back(forward.a, scratch);
  return [forward](Team& team) {
    const Attention& a = forward.a;
    const std::int64_t per_head = tiles_of(a.queries, kTileQueries);
    for_tiles(team, a.batch * a.heads * per_head, [&](std::int64_t index, int thread) {
      const std::int64_t first = index % per_head * kTileQueries;
      const Tile tile{.b = index / per_head / a.heads,
                      .head = index / per_head % a.heads,
                      .first = first,
                      .count = std::min(kTileQueries, a.queries - first)};
      forward.run_tile(tile, forward.spaces[thread]);
    });
  };
}

}  // namespace

std::vector<Operator> attention_operators() { return {{"attention", prepare_attention}}; }

}  // namespace sw::kernels::cpu
