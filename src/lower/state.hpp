#pragma once

#include <map>
#include <string>
#include <vector>

#include "mesh/layout.hpp"
#include "program/program.hpp"
#include "sharding/sharding.hpp"

/// The State of a run: parameters, gradients and optimizer state in flat *units*, below the
/// placements. What ZeRO cuts is a unit, never a tensor.
namespace sw {

/// Elements that a tensor's start in a unit, and a slice of a unit, are multiples of: a block of
/// the gradient norm never straddles two of either.
inline constexpr std::int64_t kUnitBlock = 1024;

/// One parameter in its unit.
struct UnitMember {
  ValueId parameter = -1;     ///< in the joint graph
  std::size_t order = 0;      ///< place in Graph::parameters(), the same in every graph of a run
  std::vector<Range> box;     ///< what this rank holds of the whole tensor
  std::int64_t offset = 0;    ///< elements from the unit's start
  std::int64_t elements = 0;  ///< of this rank's shard
  bool sum_over_tp = false;   ///< the raw gradient is Partial on tp
  bool counted_here = true;   ///< for a weight that is Replicate on tp: only at tp coordinate 0; a
                              ///< tied one: on its first stage; with HSDP: in the first of the
                              ///< groups that keep the same (norm, checkpoint, parameter count)
};

/// The ranks that have the same parameters and different data: gradients are reduced over them.
struct DataGroup {
  /// Of the mesh: those inside the zero group, which units are sliced over, and those outside,
  /// whose ranks keep the same slice (HSDP). Both may be empty.
  std::vector<int> shard, replicas;
  std::int64_t slices = 1;  ///< ranks of `shard`
  std::int64_t place = 0;   ///< of this rank among them
  bool first = true;        ///< of the ranks that keep the same slice
  [[nodiscard]] bool alone() const { return shard.empty() && replicas.empty(); }
};

/// A concatenation of parameter shards that is reduced, updated and gathered as one.
struct Unit {
  std::string name;
  std::size_t group = 0;  ///< index into StatePlan::groups
  std::vector<UnitMember> members;
  std::int64_t elements = 0;  ///< padded to a multiple of DataGroup::slices times kUnitBlock
  bool frozen = false;        ///< weights only
  std::vector<int> replicas;  ///< ranks of other stages that hold it too, and this one, ascending:
                              ///< their gradients are added up. Empty if there is no other
  Range slice;                ///< this rank's part of the padded unit, by DataGroup::place
  /// master: float32, of the optimizer range; -1 when the weights are updated themselves.
  BufferId weights = -1, gradients = -1, master = -1;
  std::vector<BufferId> moments;
  /// Of the optimizer range, on the host, when the optimizer is there: what the update reads, and
  /// the bfloat16 weights it writes (if that is their type and they are not on the host
  /// themselves).
  BufferId host_gradients = -1, rounded = -1;
};

struct StateOptions {
  int zero = 0;
  int zero_group = 0;                ///< ranks that a level shares out over; 0 = the data group
  DType precision = DType::Float32;  ///< of weights in use
  DType gradient_precision = DType::Float32;  ///< of accumulators and of what is reduced
  Offload offload = Offload::None;
  int moments = 2;    ///< optimizer state tensors per parameter
  bool train = true;  ///< false: weights only (a program that generates)
  int updates = 1;    ///< of a window: more than one under an asynchronous pipeline
  /// Per parameter of the graph: the pipeline stages that use it, ascending. A tied weight has two
  /// homes; the first owns it.
  std::vector<std::vector<int>> homes;
};

/// The persistent part of every Program of a run, on one rank.
struct StatePlan {
  std::vector<Buffer> buffers;
  std::vector<Unit> units;
  StateOptions options;
  /// Of all of dp and cp; with ep, also those that have the same experts.
  std::vector<DataGroup> groups;
  std::vector<int> data_axes;   ///< of dp and cp
  BufferId scalars_count = -1;  ///< valid_count int64 [1]
  BufferId count = -1, norm_words = -1, settings = -1, verdict = -1, dropout_key = -1;
  std::map<WindowSum, Operand> sums;  ///< those that the model has
  /// float32 [layers, E], whole on every rank, which all move it alike; buffer -1: the model has
  /// none.
  Operand router_bias;
  [[nodiscard]] Operand router_bias_of(const Value& input) const;

  [[nodiscard]] const DataGroup& group(const Unit& unit) const { return groups.at(unit.group); }
  /// What this rank keeps of a unit from step to step, as ranges of the unit: the slice from the
  /// ZeRO level that cuts it, else all.
  [[nodiscard]] Range optimizer_range(const Unit& unit) const { return kept(unit, 1); }
  [[nodiscard]] Range gradient_range(const Unit& unit) const { return kept(unit, 2); }
  [[nodiscard]] Range weight_range(const Unit& unit) const { return kept(unit, 3); }
  /// Elements of a unit, all of which this rank keeps, in its memory.
  [[nodiscard]] Operand weights(const Unit& unit, const Range& elements) const;
  [[nodiscard]] Operand gradients(const Unit& unit, const Range& elements) const;
  /// Elements of a unit's optimizer range: what the update reads, and writes besides moments and
  /// (in weights of bfloat16) the master.
  [[nodiscard]] Operand updating_gradients(const Unit& unit, const Range& elements) const;
  [[nodiscard]] Operand master(const Unit& unit, const Range& elements) const;
  [[nodiscard]] Operand rounded(const Unit& unit, const Range& elements) const;
  [[nodiscard]] const Buffer& buffer(BufferId id) const {
    return buffers.at(static_cast<std::size_t>(id));
  }

 private:
  [[nodiscard]] Range kept(const Unit& unit, int cut_from_level) const;
  [[nodiscard]] Operand in_optimizer_range(const Unit& unit, BufferId buffer, DType dtype,
                                           const Range& elements) const;
};

/// The part of a member that lies in `range` (elements of its unit), as elements of the unit; empty
/// when none does.
[[nodiscard]] Range part_in(const UnitMember& member, const Range& range);

/// A piece of a member that this rank owns: each element of each parameter is owned once over all
/// ranks.
struct OwnedPiece {
  const Unit* unit = nullptr;
  const UnitMember* member = nullptr;
  Range elements;            ///< of the member's shard
  std::int64_t in_unit = 0;  ///< elements from the unit's start
  [[nodiscard]] Range place() const { return {in_unit, in_unit + elements.size()}; }
};
[[nodiscard]] std::vector<OwnedPiece> owned_pieces(const StatePlan& state);

/// Lays out the State of `rank`.
[[nodiscard]] StatePlan plan_state(const ModelGraph& model, const ShardedGraph& sharded, int rank,
                                   const StateOptions& options);

}  // namespace sw
