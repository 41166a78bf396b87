// Context parallel: the tokens of a sample over ranks, under a causal mask.
// Source: Dubey et al. 2024 (Llama 3), arXiv:2407.21783, section 3.3.2: 2C chunks, rank i has
// chunks i and 2C - 1 - i, keys and values are gathered; ring: Liu et al. 2023, arXiv:2310.01889;
// all_to_all: Jacobs et al. 2023, arXiv:2309.14509.

#include <fmt/format.h>

#include <algorithm>

#include "base/shape.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;  ///< whose pairs fit in 63 bits
constexpr std::int64_t kMostContextRanks = 4096;

/// Pairs of queries in `range` with all keys up to them.
std::int64_t causal_pairs(Range range) {
  return (range.end * (range.end + 1) - range.begin * (range.begin + 1)) / 2;
}

std::int64_t limited(const Inputs& in, std::string_view name, std::int64_t most) {
  const std::int64_t count = in.count(name);
  if (count > most) {
    in.reject(fmt::format("{} = {} is more than {}, the most of this account", name, count, most));
  }
  return count;
}

void tokens_of_ranks(const Inputs& in, Outputs& out) {
  const std::int64_t tokens = limited(in, "tokens", kMostTokens);
  const std::int64_t ranks = limited(in, "ranks", kMostContextRanks);
  if (ranks > tokens) {
    in.reject(fmt::format("ranks = {} are more than tokens = {}; at most {} have one to do", ranks,
                          tokens, tokens));
  }
  std::int64_t local = 0;
  std::vector<std::int64_t> contiguous;
  std::vector<std::int64_t> zigzag;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Range own = split(tokens, ranks, rank);
    local += causal_pairs({0, own.size()});
    contiguous.push_back(causal_pairs(own));
    zigzag.push_back(causal_pairs(split(tokens, 2 * ranks, rank)) +
                     causal_pairs(split(tokens, 2 * ranks, 2 * ranks - 1 - rank)));
  }
  const std::int64_t full = causal_pairs({0, tokens});
  out.set("pairs_full", full);
  out.set("pairs_if_local_only", local);
  out.set("missing", full - local);
  out.set(fmt::format("token{}_keys_full", tokens), tokens);
  out.set(fmt::format("token{}_keys_local", tokens), split(tokens, ranks, ranks - 1).size());
  out.set("contiguous", contiguous, "pairs");
  out.set("zigzag", zigzag, "pairs");
  const double mean = static_cast<double>(full) / static_cast<double>(ranks);
  out.set("contiguous_slowest", plain(static_cast<double>(contiguous.back()) / mean), "x");
  out.set("zigzag_slowest", plain(static_cast<double>(*std::ranges::max_element(zigzag)) / mean),
          "x");
  if (local != full) {
    out.wrong("pairs_full", local, "1",
              "a rank's own keys only: earlier tokens of others are lost");
  }
  if (ranks > 1 && tokens % (2 * ranks) != 0) {
    out.note(
        fmt::format("{} tokens do not divide into 2*{} chunks: zig-zag is not quite even, and "
                    "a run refuses it; the nearest above is {}",
                    tokens, ranks, round_up(tokens, 2 * ranks)));
  }
}

/// Of a micro-batch's rows, whole sequence: kv = 2*b*s*kv_heads*head_dim*act_bytes keys and values,
/// q = b*s*heads*head_dim*act_bytes queries, and as much comes out of attention.
void attention_traffic(const Inputs& in, Outputs& out) {
  const std::int64_t tokens = limited(in, "s", kMostTokens);
  const std::int64_t ranks = limited(in, "cp", kMostContextRanks);
  const std::string context = in.word("context", "gather");
  if (context != "gather" && context != "ring" && context != "all_to_all") {
    in.reject(fmt::format("context = \"{}\" is none of gather, ring, all_to_all", context));
  }
  if (ranks > 1 && tokens % (2 * ranks) != 0) {
    in.reject(fmt::format("s = {} does not divide by 2*cp = {}; the nearest above that does is {}",
                          tokens, 2 * ranks, round_up(tokens, 2 * ranks)));
  }
  const double element = in.bytes("act_bytes");
  const double per_head = element * static_cast<double>(tokens) *
                          static_cast<double>(in.count("b")) *
                          static_cast<double>(in.count("head_dim"));
  const double kv = 2 * per_head * static_cast<double>(in.count("kv_heads"));
  const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
                        static_cast<double>(in.count_or("layers", 1)) *
                        static_cast<double>(in.count_or("microbatches", 1));
  double sent = 0;
  out.quantity("kv", kv, "B");
  if (context == "gather") {
    out.quantity("all_gather", 2 * others * kv, "B");
    out.quantity("reduce_scatter", others * kv, "B");
    sent = 3 * others * kv;
  } else if (context == "ring") {
    sent = others * kv * (2 + 4 / element);
    out.quantity("send", sent, "B");
  } else {
    for (const char* heads : {"heads", "kv_heads"}) {
      if (in.count(heads) % ranks != 0) {
        in.reject(fmt::format("cp = {} does not divide {} = {}", ranks, heads, in.count(heads)));
      }
    }
    const double q = per_head * static_cast<double>(in.count("heads"));
    out.quantity("q", q, "B");
    sent = 2 * others * (2 * q + kv) / static_cast<double>(ranks);
    out.quantity("all_to_all", sent, "B");
  }
  out.quantity("sent_per_rank", sent, "B");
  out.note("gradients of the weights are summed over cp as over dp and come on top (account zero)");
}

}  // namespace

std::vector<Rule> context_rules() {
  return {
      {"pairs = T*(T+1)/2; contiguous: rank r has part r of R; zig-zag: chunks r and 2R-1-r of 2R",
       {"tokens", "ranks"},
       {},
       {},
       tokens_of_ranks},
      {"kv = 2*b*s*kv_heads*head_dim*act_bytes, q = b*s*heads*head_dim*act_bytes; a layer: gather "
       "3*(C-1)/C*kv, ring (2+4/act_bytes)*(C-1)/C*kv, all_to_all 2*(C-1)/C*(2*q+kv)/C",
       {"b", "s", "kv_heads", "head_dim", "act_bytes", "cp"},
       {"layers", "microbatches", "context", "heads"},
       {},
       attention_traffic},
  };
}

}  // namespace sw::accounts
