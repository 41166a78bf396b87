#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace sw {

/// How a tensor lies on one mesh axis.
struct Placement {
  enum class Kind : std::uint8_t { Replicate, Shard, Partial, Routed };
  Kind kind = Kind::Replicate;
  int dim = 0;                  ///< Shard: which dim is cut; Routed: which was
  ReduceOp op = ReduceOp::Sum;  ///< Partial: how the ranks' values combine
  [[nodiscard]] bool is_replicate() const { return kind == Kind::Replicate; }
  [[nodiscard]] bool is_shard() const { return kind == Kind::Shard; }
  [[nodiscard]] bool is_partial() const { return kind == Kind::Partial; }
  [[nodiscard]] bool is_routed() const { return kind == Kind::Routed; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

[[nodiscard]] inline Placement replicate() { return {}; }
[[nodiscard]] inline Placement shard(int dim) {
  return {Placement::Kind::Shard, dim, ReduceOp::Sum};
}
[[nodiscard]] inline Placement partial(ReduceOp op = ReduceOp::Sum) {
  return {Placement::Kind::Partial, 0, op};
}
/// Of slots [B,S,k,...], which were cut on `dim`: each lies on the rank that has the expert it
/// chose. On all axes of `ep` or on none. How many lie on a rank is known when it runs.
[[nodiscard]] inline Placement routed(int dim) {
  return {Placement::Kind::Routed, dim, ReduceOp::Sum};
}

/// One placement per axis of the mesh, in mesh order.
using Sharding = std::vector<Placement>;

/// "R", "S(1)", "P", "Pmax", "E(0)" (routed); a sharding: "[R, S(1)]".
[[nodiscard]] std::string to_text(Placement placement);
[[nodiscard]] std::string to_text(const Sharding& sharding);

}  // namespace sw
