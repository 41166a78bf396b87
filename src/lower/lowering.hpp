#pragma once

#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "lower/insertions.hpp"
#include "lower/lower.hpp"
#include "program/ledger.hpp"

/// What the passes of lowering share: a Program under construction, with its buffers, groups and
/// streams.
namespace sw {

class Lowering {
 public:
  Lowering(const ModelGraph& model, const ShardedGraph& sharded, const StatePlan& state, int rank,
           const LowerOptions& options);

  /// What the host writes and reads of each update.
  void place_update_operands();
  /// Count of valid labels: reduced, and turned into what the loss divides by.
  void emit_count();
  /// The micro-batches: what this rank's stage does, in its order. Gradients of parameters go into
  /// their units.
  void emit_actions(const PipelineOrder& order);
  /// ZeRO level 3, when all micro-batches are there: gathers around the uses of each unit.
  void gather_weights();
  /// Likewise: reductions of gradients.
  void insert_gradient_reductions();
  /// Gradients of weights that two stages use.
  void emit_tied_reductions();
  /// The loss and what else is added up (WindowSum), over all ranks.
  void emit_sums();
  /// Norm, verdict, update, and the gathering of parameters.
  void emit_update();
  /// In an asynchronous pipeline, where stages have made their updates: their norms and verdicts
  /// over all stages, for the host to read.
  void emit_verdicts();
  /// Steps only until the logits are there; returns where.
  Operand emit_until_logits();
  /// Data edges, memory map, verification.
  [[nodiscard]] Program finish(std::string name);

 private:
  struct Placed {
    Operand operand;
    bool shared = false;  ///< persistent or an input: never overwritten in place
  };

  // operands.cpp: where values live
  Operand transient(const std::string& name, DType dtype, const Shape& shape, Lane lane,
                    Category category);
  void find_sums();
  [[nodiscard]] Operand& host_sum(WindowSum sum);
  [[nodiscard]] std::int64_t row_of(const Value& summand) const;
  void find_last_uses_and_lanes();
  Operand place_output(const ShardedStep& step, std::size_t index, std::size_t at);
  [[nodiscard]] Placed parameter_operand(CopyId copy) const;
  [[nodiscard]] int updates() const { return options_.update.updates(options_.micro_batches); }
  /// The part of a host operand that belongs to an update of the window.
  [[nodiscard]] Operand of_update(const Operand& all, int update, const Shape& shape) const;
  /// Of a part of the tokens while the head goes over them.
  [[nodiscard]] Shape local_shape(CopyId copy) const;
  [[nodiscard]] Shape whole_shape(CopyId copy) const;
  [[nodiscard]] Shape local_start(CopyId copy) const;
  /// As `local_shape`, but of routed slots the number that a rank has if all experts are chosen
  /// alike.
  [[nodiscard]] std::vector<Shape> even_shapes(const std::vector<CopyId>& copies) const;
  [[nodiscard]] const Copy& copy(CopyId id) const {
    return sharded_.copies[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const Value& value(CopyId id) const { return model_.graph.value(copy(id).value); }
  Operand& operand(CopyId id) { return placed_[static_cast<std::size_t>(id)].operand; }

  // pipeline.cpp: which steps, and what crosses to other stages
  /// Values that a segment's forward, or backward, hands to its neighbour.
  struct Boundary {
    int from = 0, to = 0;  ///< segments
    Direction direction = Direction::Forward;
    std::vector<CopyId> copies;
    friend bool operator==(const Boundary&, const Boundary&) = default;
  };
  /// The way from one stage to another for one direction: a stream of its own, so that neither
  /// waits for anything but the value.
  struct Link {
    StreamId stream = 0;
    GroupId group = 0;
    int peer = 0;                      ///< the other end's place in the group
    std::vector<InstructionId> sends;  ///< so far
  };
  void find_boundaries();
  void make_links();
  [[nodiscard]] Link& link(const Boundary& boundary);
  [[nodiscard]] bool crosses(const Boundary& boundary) const;
  [[nodiscard]] bool sends(const PipelineAction& action, const Boundary& boundary) const;
  [[nodiscard]] bool receives(const PipelineAction& action, const Boundary& boundary) const;
  void emit_action(const PipelineAction& action);
  [[nodiscard]] bool belongs(std::size_t at, const PipelineAction& action) const;
  [[nodiscard]] bool only_for_weights(const ShardedStep& step) const;
  void emit_receives(const PipelineAction& action);
  void emit_sends(const PipelineAction& action);
  void emit_loads(const ShardedStep& step);
  void add_batches(int micro_batches);
  [[nodiscard]] int stage() const;

  // micro_batch.cpp: steps -> instructions
  void emit_load(const ShardedStep& step);
  void emit_move(const ShardedStep& step, std::size_t at);
  void emit_slice(const ShardedStep& step);
  void emit_collective_move(const ShardedStep& step, std::size_t at);
  void emit_compute(const ShardedStep& step, std::size_t at);
  void emit_step(std::size_t at);
  void emit_one(std::size_t at);
  [[nodiscard]] std::vector<Placed> parameters_placed() const;
  [[nodiscard]] bool accumulates(int gradient);
  [[nodiscard]] Phase phase_of(const ShardedStep& step) const;
  [[nodiscard]] std::vector<InstructionId> after_compute() const;
  void emit(Instruction instruction);
  Instruction kernel_instruction(const std::string& name, const kernels::KernelCall& call,
                                 std::vector<Operand> inputs, std::vector<Operand> outputs,
                                 double flops);
  void emit_work(const std::string& name, Phase phase, Work work, std::vector<Operand> inputs,
                 std::vector<Operand> outputs);
  void emit_kernel(const std::string& name, const kernels::KernelCall& call,
                   std::vector<Operand> inputs, std::vector<Operand> outputs, double flops,
                   Phase phase);
  GroupId group(const std::vector<int>& axes, StreamId stream);
  GroupId world_group();
  GroupId tied_group(const Unit& unit);
  GroupId expert_group();
  GroupId listed_group(int key, const std::string& name, StreamId stream,
                       const std::vector<int>& members);
  [[nodiscard]] StreamId communication_stream();
  [[nodiscard]] bool has_collectives() const { return sharded_.mesh.world() > 1; }

  // head.cpp: logits of a part of the tokens at a time
  struct Head {
    std::vector<std::size_t> steps;   ///< repeated for each part, in order
    std::vector<bool> deferred;       ///< per step: moved to the backward, where there is one
    std::vector<bool> logits;         ///< per copy: logits or their gradients
    std::vector<bool> by_token;       ///< per copy that these steps touch: has a row a token
    Range part;                       ///< of the rank's tokens, while parts are emitted
    std::map<CopyId, Operand> whole;  ///< likewise: where copies by token lie
  };
  void find_head();
  void emit_before_head(std::size_t at);
  void emit_head();
  [[nodiscard]] Shape shape_of_part(CopyId id, Shape whole) const;
  [[nodiscard]] Operand in_part(CopyId id, Operand whole) const;
  Operand place_copy(CopyId id, const std::string& name, DType dtype, Lane lane, Category category);

  // all_to_all.cpp
  void emit_all_to_all(const ShardedStep& step);
  [[nodiscard]] std::vector<Operand> packed(const std::string& name, DType dtype,
                                            const std::vector<Shape>& shapes);

  // routed.cpp: slots whose ranks are known when it runs
  /// How a micro-batch's slots of a layer travel.
  struct Route {
    Operand order;   ///< int32 [slots]: by expert
    Operand table;   ///< int32 [n, E]: slots of each rank for each expert
    Operand rounds;  ///< int32 [1]: in how many rounds they travel
  };
  [[nodiscard]] Shape routed_shape(Shape even) const;
  [[nodiscard]] bool is_routed(CopyId id) const;
  [[nodiscard]] std::int64_t experts_of(ValueId choice) const;
  void find_packed_tokens();
  void emit_route(const ShardedStep& step);
  void emit_routed_move(const ShardedStep& step);
  Operand packed_slots(const ShardedStep& step);
  void emit_exchange_of_slots(const ShardedStep& step, Routing routing, const Operand& from,
                              const Operand& to);
  void emit_departure(const ShardedStep& step, const Operand& packed);
  void emit_return(const ShardedStep& step, const Operand& packed);
  void emit_unpack(const ShardedStep& step, const Operand& packed);

  // rounds.cpp: slots that a rank has no room for at once
  /// The round being emitted.
  struct Round {
    int number = 0;
    Operand rounds;
    Phase phase = Phase::Forward;
  };
  [[nodiscard]] std::int64_t room_for(std::int64_t slots) const;
  void find_rounds();
  [[nodiscard]] bool returns_slots(const ShardedStep& step) const;
  [[nodiscard]] std::vector<std::size_t> routed_steps(std::size_t like) const;
  void find_own_of_backward();
  [[nodiscard]] CopyId own_copy(CopyId id, Phase phase) const;
  [[nodiscard]] std::vector<CopyId> sources(CopyId id) const;
  [[nodiscard]] std::vector<std::size_t> steps_of_a_round(const std::vector<std::size_t>& steps,
                                                          Phase phase) const;
  void emit_ahead(CopyId id, std::size_t position);
  void emit_of_round(std::size_t at);
  void emit_rounds(std::size_t first_return);

  // ring.cpp: attention whose keys and values go round
  /// A block's keys and values, or their gradients.
  struct KeysAndValues {
    Operand keys, values;
  };
  void make_ring();
  void emit_ring(const ShardedStep& step, std::size_t at);
  void emit_ring_forward(const ShardedStep& step, const std::vector<Operand>& inputs,
                         const std::vector<Operand>& sums);
  void emit_ring_backward(const ShardedStep& step, const std::vector<Operand>& inputs,
                          const std::vector<Operand>& sums);
  void emit_exchange(const ShardedStep& step, int hop, const KeysAndValues& here,
                     KeysAndValues& next);
  void emit_hop(const ShardedStep& step, const std::string& what, const KeysAndValues& block,
                bool receives);
  void emit_block(const ShardedStep& step, int hop, const KeysAndValues& here,
                  std::vector<Operand> inputs, const std::vector<Operand>& outputs,
                  std::vector<bool> accumulate);
  void emit_sum(const ShardedStep& step, const KeysAndValues& part, const KeysAndValues& sum);
  [[nodiscard]] Operand columns_of_block(CopyId copy, int block);
  [[nodiscard]] KeysAndValues ring_buffers(const ShardedStep& step, const std::string& what,
                                           DType dtype);

  // asynchronous.cpp
  [[nodiscard]] bool completes_update(const PipelineAction& action) const;
  void emit_stage_update(int update, std::span<const PipelineAction> later);
  [[nodiscard]] std::set<std::size_t> units_read(const PipelineAction& action) const;
  void stash_weights(std::span<const PipelineAction> later);
  void use_version(int version);
  [[nodiscard]] int version_used(const PipelineAction& action) const;

  // window.cpp
  [[nodiscard]] Operand norm_words(int update) const;
  void emit_squares(int update);
  void emit_verdict(int update, bool with_loss);
  void emit_new_weights(int update);
  void emit_all_reduce(const std::string& name, const std::vector<int>& axes,
                       const Operand& operand);
  void zero_unwritten(WindowSum sum);
  [[nodiscard]] Operand sum_rows(WindowSum sum, std::int64_t begin, std::int64_t count);
  void emit_optimizer(const Unit& unit, int update);
  Instruction weight_gather(const std::vector<std::size_t>& units);
  [[nodiscard]] Operand unit_range(BufferId buffer, std::int64_t begin, std::int64_t count,
                                   DType dtype) const;

  // offload.cpp
  /// A copy between device and host, on the stream of its direction.
  Instruction host_copy(const std::string& name, const Operand& from, const Operand& to,
                        CopyDirection direction);
  [[nodiscard]] StreamId host_stream(CopyDirection direction);
  /// Gradients that the update will read on the host.
  Instruction gradients_to_host(const Unit& unit);
  /// Weights that were updated on the host.
  void emit_updated_weights(const Unit& unit);

  // reduce.cpp
  struct RawGradients;
  [[nodiscard]] int rounds(const Unit& unit) const;
  std::vector<Instruction> reductions_of_update();
  void check_gradients_in_place() const;
  RawGradients raw_gradients(int round);
  void prepare_raw(std::size_t u, const RawGradients& raw,
                   const std::vector<Insertions::Place>& reduced, Insertions& insertions);
  Instruction replica_sum(const std::vector<std::size_t>& bucket);
  std::vector<Instruction> bucket_reductions(const std::vector<std::size_t>& bucket,
                                             const RawGradients& raw, int round);
  [[nodiscard]] std::vector<std::vector<std::size_t>> buckets(const RawGradients& raw) const;

  const ModelGraph& model_;
  const ShardedGraph& sharded_;
  const StatePlan& state_;
  LowerOptions options_;
  int rank_;
  std::vector<int> coordinates_;
  Program program_;
  int micro_batch_ = -1;
  StreamId communication_ = -1;                     ///< the stream, once something needs it
  std::map<CopyDirection, StreamId> host_streams_;  ///< likewise
  std::vector<Placed> placed_;                      ///< per copy, of the micro-batch being emitted
  std::map<int, std::vector<Placed>> waiting_;  ///< placed_ of the micro-batches that are under way
  std::vector<int> segment_of_step_;
  std::vector<std::size_t> load_of_copy_;  ///< per copy: the step that loads it, or none
  std::vector<Boundary> boundaries_;
  std::map<std::pair<std::pair<int, int>, Direction>, Link> links_;  ///< by stages
  /// This rank's place on the ring of its cp group, and the ways to the next and from the one
  /// before.
  int ring_place_ = 0;
  int ring_ranks_ = 0;
  Link ring_next_, ring_before_;
  std::map<std::pair<int, CopyId>, Route> routes_;  ///< by micro-batch and routed choice
  bool room_for_all_slots_ = false;
  int most_rounds_ = 1;
  Round round_;
  Head head_;
  std::set<std::pair<int, std::size_t>> emitted_;  ///< steps of a micro-batch, out of their turn
  std::vector<std::size_t> maker_of_copy_;         ///< per copy: a step
  std::vector<CopyId> own_of_backward_;  ///< per copy: the one alike that the backward makes, or it
  std::vector<int> layer_of_value_;
  std::vector<bool>
      packed_from_tokens_;  ///< per copy: slots that only leave; placed as their tokens
  std::map<std::tuple<int, CopyId, int>, Operand>
      columns_;  ///< by micro-batch, copy and block: positions and documents of a block's keys
  std::vector<std::size_t> last_use_;  ///< per copy: index of the last step that touches it
  std::vector<Lane> lane_;             ///< per copy
  std::vector<int> gradient_of_copy_;  ///< per copy: index into sharded_.gradients, -1
  std::map<ValueId, std::pair<std::size_t, std::size_t>>
      member_of_;                     ///< parameter -> (unit, member)
  std::map<WindowSum, CopyId> sums_;  ///< of this graph: a copy that is added to it
  std::set<std::pair<WindowSum, std::int64_t>>
      written_sums_;  ///< rows, by an earlier layer or micro-batch of this rank
  std::set<std::pair<int, int>> written_gradients_;  ///< by gradient and what it is reduced with
  int version_ = 0;  ///< of this stage's weights: updates so far in an asynchronous pipeline
  std::map<int, std::vector<BufferId>> stashed_;  ///< earlier ones, per unit
  int used_version_ = 0;                          ///< by the action being emitted
  std::map<std::pair<std::vector<int>, StreamId>, GroupId> groups_;
  std::vector<std::vector<std::size_t>> update_order_;  ///< buckets of unit indices, in the order
                                                        ///< in which their gradients are reduced
};

}  // namespace sw
