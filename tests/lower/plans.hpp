#pragma once

#include <string>

#include "lower/compile.hpp"
#include "program/ledger.hpp"

namespace sw::test {

/// A small Llama: 3 layers, 2 micro-batches of a row.
inline CompileOptions options_of(int dp, int tp, int zero) {
  CompileOptions options;
  options.model.vocabulary = 64;
  options.model.hidden = 32;
  options.model.layers = 3;
  options.model.heads = 4;
  options.model.kv_heads = 2;
  options.model.head_dim = 8;
  options.model.feed_forward = 64;
  options.model.max_positions = 64;
  options.parallel.layout.dp = dp;
  options.parallel.layout.tp = tp;
  options.parallel.zero = zero;
  options.parallel.bucket_mib = 0;  // a bucket per unit
  options.micro_batch = 1;
  options.accumulation = 2;
  options.sequence = 8;
  return options;
}

/// Bytes of all units of a kind of buffer ("gradients", "weights").
inline std::int64_t unit_bytes(const Program& program, const std::string& kind) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    bytes += buffer.persistent && buffer.name.ends_with("." + kind) ? buffer.bytes : 0;
  }
  return bytes;
}

inline std::int64_t sent(const Ledger& ledger, Traffic kind, const char* axis) {
  const auto found = ledger.find({kind, axis});
  return found == ledger.end() ? 0 : found->second.sent_bytes;
}

}  // namespace sw::test
