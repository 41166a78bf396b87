#pragma once

#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "graph/operator.hpp"
#include "mesh/layout.hpp"
#include "mesh/mesh.hpp"
#include "mesh/redistribute.hpp"

/// Placements for every value of a joint (forward and backward) graph, and the moves between them.
namespace sw {

/// What a layout pins, beside the sizes of the mesh.
struct ShardingOptions {
  bool sequence_parallel = false;  ///< the residual stream is cut along the sequence on tp
  bool keep_gathered = false;      ///< copies gathered in the forward are kept for the backward
  /// How attention sees the whole sequence on cp: keys and values go round in blocks, or are
  /// gathered, or queries too are exchanged for all of the sequence and fewer heads.
  ContextAlgorithm context = ContextAlgorithm::Gather;
};

using CopyId = int;

/// One value in one sharding. A value may have several; a move makes one from another once, and it
/// is reused.
struct Copy {
  ValueId value = -1;
  Sharding sharding;
  Direction made_in = Direction::Forward;
  bool gathered = false;  ///< came out of an all-gather: not kept from forward to backward
};

/// One step of the sharded graph, in order.
struct ShardedStep {
  enum class Kind : std::uint8_t { Load, Move, Compute };
  Kind kind = Kind::Compute;
  CopyId from = -1;    ///< Move
  CopyId to = -1;      ///< Load, Move
  sw::Move move;       ///< Move
  CopyId choice = -1;  ///< Move of slots to or from their experts: which chose what, routed itself
  OpId op = -1;        ///< Compute
  std::vector<CopyId> inputs, outputs;
  bool recomputed = false;  ///< a forward step that runs again, in the backward
};

/// A parameter's raw gradient: contributions in one sharding each (Partial on the axes it must be
/// summed over).
struct ShardedGradient {
  ValueId parameter = -1;
  std::vector<CopyId> contributions;
};

struct ShardedGraph {
  Mesh mesh{{}};
  std::vector<Copy> copies;
  std::vector<ShardedStep> steps;
  /// chosen[op][axis]: the signature each op runs under.
  std::vector<std::vector<Signature>> chosen;
  std::vector<CopyId>
      parameters;  ///< home copy of each parameter, in the order of Graph::parameters()
  std::vector<ShardedGradient> gradients;  ///< as Graph::parameter_gradients
};

/// Whether a step runs in the forward or in the backward.
[[nodiscard]] Direction direction_of(const ModelGraph& model, const ShardedGraph& sharded,
                                     const ShardedStep& step);
/// Per value: the layer of the op that makes it; -1 if none does, or one of the ends of the model.
[[nodiscard]] std::vector<int> layers_of_values(const Graph& graph);
/// The copies that a step reads, and those that it makes.
[[nodiscard]] std::vector<CopyId> copies_read(const ShardedStep& step);
[[nodiscard]] std::vector<CopyId> copies_made(const ShardedStep& step);

/// How a layout places a parameter: heads, feed-forward and vocabulary letters are cut on tp (KV
/// heads only when they divide; Replicate otherwise), experts on the axes of ep, all else
/// Replicate.
[[nodiscard]] Sharding parameter_sharding(const Value& parameter, const Mesh& mesh);

/// Refuses sizes that the layout must divide (ConfigError, with the values that do).
void check_sizes(const ModelGraph& model, const Mesh& mesh, const ShardingOptions& options);

/// Propagates placements through the joint graph, greedily, op by op and axis by axis, and inserts
/// redistributions. Deterministic.
[[nodiscard]] ShardedGraph propagate(const ModelGraph& model, const Mesh& mesh,
                                     const ShardingOptions& options);

/// Checks a sharded graph after the rules of the algebra; throws InternalError naming the step:
/// every op under a legal signature on each axis, every move a row of the table, no Partial read by
/// a non-linear op or kept for the backward, Pmax only between row_max and its all-reduce,
/// gradients of parameters placed like the parameter or Partial.
void verify(const ModelGraph& model, const ShardedGraph& sharded);

/// "forward all_reduce tp layers.0.attention" … one line per communicating move of one layer (-1:
/// the ends of the model): what the golden lists hold.
[[nodiscard]] std::string collectives_text(const ModelGraph& model, const ShardedGraph& sharded,
                                           int layer);

/// The axes round which a step's keys and values go (Signature::ring): all parts of cp, or none.
[[nodiscard]] std::vector<int> ring_axes(const ShardedGraph& sharded, const ShardedStep& step);

/// Whether slots lie so, each where its expert is: how many lie on a rank is known when it runs.
[[nodiscard]] bool is_routed(const Sharding& sharding);

/// Local shape, start and dtype of a copy. A Partial(sum) copy of a bfloat16 value is kept in
/// float32: it is summed in float32 and rounded once.
[[nodiscard]] std::vector<Range> copy_box(const ModelGraph& model, const ShardedGraph& sharded,
                                          CopyId copy, const std::vector<int>& coordinates);
[[nodiscard]] DType copy_dtype(const ModelGraph& model, const ShardedGraph& sharded, CopyId copy);

}  // namespace sw
