#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "comm/communicator.hpp"
#include "kernels/kernel.hpp"

/// A training step of one rank as a list of instructions: what `simulate` costs and `execute` runs.
///
/// Instructions stand in one order. Each names its stream; a stream runs its instructions in that
/// order, one at a time. What must have ended on other streams is said by explicit edges (`after`).
/// Nothing is left to decide at run time.
namespace sw {

/// Index into Program::buffers, Program::instructions, Program::groups, Program::streams.
using BufferId = int;
using InstructionId = int;
using GroupId = int;
using StreamId = int;

/// Which block of memory a buffer lies in. What collectives touch lies in the window that the
/// communicator provides. `Host` is the memory of the device's host: only copies and the optimizer
/// touch it.
enum class Lane : std::uint8_t { Private, Window, Host };

/// What a byte is for; the rows of the plan's memory account.
enum class Category : std::uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,
  Communication,
  Workspace
};

struct Buffer {
  std::string name;
  Lane lane = Lane::Private;
  Category category = Category::Activations;
  /// Part of the State: keeps its value from step to step and its address in every Program of the
  /// run. Transient buffers live from their first to their last instruction.
  bool persistent = false;
  std::int64_t bytes = 0;
  /// From the lane's start; set by the memory map, a multiple of kAlignment.
  std::int64_t offset = -1;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};
inline constexpr std::int64_t kAlignment = 64;

/// A dense tensor inside a buffer.
struct Operand {
  BufferId buffer = -1;
  std::int64_t offset = 0;  ///< bytes from the buffer's start
  DType dtype = DType::Float32;
  Shape shape;
  friend bool operator==(const Operand&, const Operand&) = default;
};
/// Throws InternalError when they do not fit in 63 bits.
[[nodiscard]] std::int64_t bytes_of(const Operand& operand);

/// An operator: `kernels::prepare` with the instruction's inputs and outputs. `scratch` (if any) is
/// the last *extra* operand, see Instruction::scratch.
struct KernelWork {
  std::string op;
  kernels::Parameters parameters;
  std::vector<bool> accumulate;  ///< per output
  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

/// Copies a slice: output = input[…, start : start + output.shape[dim], …] on `dim`.
struct SliceWork {
  int dim = 0;
  std::int64_t start = 0;
  friend bool operator==(const SliceWork&, const SliceWork&) = default;
};

/// The reverse: outputs[0] = the inputs side by side on `dim`.
struct JoinWork {
  int dim = 0;
  friend bool operator==(const JoinWork&, const JoinWork&) = default;
};

/// Copies inputs[0] to outputs[0], of one type and shape, over the link between device and host:
/// one of them lies in the lane `Host`.
struct CopyWork {
  friend bool operator==(const CopyWork&, const CopyWork&) = default;
};

/// What is done with slots [B,S,k,...] on this side of an all_to_all that brings them to the
/// experts they chose (Routing). R: rows that there is room for.
///
///   Order     choice int32 [B,S,k] -> order int32 [slots], counts int32 [1,E]
///             slots by expert, those of an expert as they stand, and after them those without one
///             (choice -1) as -1 - slot; and how many each expert has
///   Arrivals  table int32 [n,E] -> choice int32 [R,...], rounds int32 [1] (in round 0 only)
///             of each row that comes to rank `rank` of the group in the instruction's round the
///             expert, counted from this rank's first; -1 where none comes. All that come stand by
///             rank, then by expert, then as there; each round takes the next R. How many rounds
///             the rank with most to come needs
///   Pack      rows [slots / chosen,...], order -> packed [slots,...]: in that order, a row for
///   each
///             of the `chosen` slots that it stands for
///   Unpack    packed, order -> rows; those of slots without an expert are zero
enum class SlotKind : std::uint8_t { Order, Arrivals, Pack, Unpack };
struct SlotWork {
  SlotKind kind = SlotKind::Order;
  int rank = 0;
  std::int64_t chosen = 1;
  friend bool operator==(const SlotWork&, const SlotWork&) = default;
};

/// An all_to_all whose counts are known when it runs: rows of packed slots [slots,...] to the ranks
/// that have their experts, where there is room for rows [R,...], or from there back. A second
/// input is the table, int32 [n,E]: how many slots each rank of the group has for each expert; the
/// experts are shared out evenly, in order. It moves those that there is room for in the
/// instruction's round.
enum class Routing : std::uint8_t { None, ToExperts, FromExperts };

/// A collective over `group`. Its segments are inputs[i] -> outputs[i], each cut on `dims[i]`-th
/// dim of the *whole* shape: outer = dims before, length = that dim, trailing = dims after. For
/// all_reduce and broadcast the cut is over the flat tensor (dims[i] = -1: outer 1, length = all
/// elements, trailing 1), likewise for flat units. A send has inputs only, a receive outputs only.
struct CollectiveWork {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ReduceOp op = ReduceOp::Sum;
  GroupId group = 0;
  std::vector<int> dims;
  int peer = -1;  ///< root of a broadcast, other end of a send or receive: rank in the group
  /// all_to_all only: elements to and from each rank of the group, in rank order.
  std::vector<std::int64_t> input_counts;
  std::vector<std::int64_t> output_counts;
  Routing routing = Routing::None;  ///< all_to_all only, and then instead of counts
  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
};

/// What happens once a window, on small values. The operands are fixed by kind:
///
///   FinishCount  valid_count int64 [1] (reduced) -> count float32 []
///                1 if no token is valid, so that nothing divides by zero
///   Squares      owned gradient ranges, float32 [n] each -> norm_words uint64 [ExactSum::kWords]
///                overwritten; ranges start at multiples of 1,024 elements of their tensor
///   FinishNorm   norm_words (reduced), settings float64 [kSettings], loss float32 [] if it is
///   known
///                -> verdict float64 [kVerdict]: gradient norm, gradient scale (clip / norm or 1),
///                apply (1, or 0 when the norm or the loss is not finite, or no update is asked
///                for)
///   MoveBias     verdict, load int64 [layers, E] (reduced), bias float32 [layers, E] -> bias
///                each by `rate`, up where the load is below its layer's mean and down where above,
///                if the verdict says apply (Wang et al. 2024, arXiv:2408.15664, algorithm 1)
enum class WindowKind : std::uint8_t { FinishCount, Squares, FinishNorm, MoveBias };
struct WindowWork {
  WindowKind kind = WindowKind::FinishCount;
  double rate = 0;
  friend bool operator==(const WindowWork&, const WindowWork&) = default;
};
/// Written by the host before a step: learning rate, clip norm (0 = none), number of this update (1
/// for the first; 0: its micro-batches have no valid token, and it is not made).
inline constexpr int kSettings = 3;
inline constexpr int kVerdict = 3;

/// The optimizer over ranges of flat memory, predicated on verdict[2] and scaled by verdict[1].
///   inputs   settings, verdict, then the gradient of each range
///   outputs  per range: master, then `states` state tensors, then (if rounded) the bfloat16
///   weights
/// All but the last are float32 [n].
struct OptimizerWork {
  std::string rule = "adamw";  ///< adamw | sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0;
  int states = 2;  ///< adamw 2; sgd 1 with momentum, else 0
  bool rounded = false;
  std::vector<double> weight_decay;  ///< per range
  friend bool operator==(const OptimizerWork&, const OptimizerWork&) = default;
};

/// Writes zeros: outputs[0].
struct ZeroWork {
  friend bool operator==(const ZeroWork&, const ZeroWork&) = default;
};

using Work = std::variant<KernelWork, SliceWork, CollectiveWork, WindowWork, OptimizerWork,
                          ZeroWork, CopyWork, JoinWork, SlotWork>;

enum class Phase : std::uint8_t { Forward, Backward, Window };

struct Instruction {
  std::string name;  ///< "layers.2.attention", for messages and traces
  Phase phase = Phase::Forward;
  int micro_batch = -1;  ///< -1: once a window
  StreamId stream = 0;
  Work work;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  Operand scratch;  ///< buffer -1: none
  /// Edges from other streams, ascending, all smaller than this instruction's id.
  std::vector<InstructionId> after;
  double flops = 0;
  /// Slots that a rank has no room for come in further rounds: this runs if the int32 at `rounds`
  /// is larger than `round`, else nothing happens. Buffer -1: always.
  int round = 0;
  Operand rounds;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// A process group, on one stream (so that its collectives have one order).
struct Group {
  std::string axis;  ///< mesh axes joined by "+" in mesh order, or "world": the ledger's row
  StreamId stream = 0;
  std::vector<int> members;  ///< ranks of the world, ascending
  friend bool operator==(const Group&, const Group&) = default;
};

/// Where the host writes before a step and reads after it.
struct BatchSlot {
  Operand tokens, labels, positions, documents;  ///< int32 [B,S] of this rank
  friend bool operator==(const BatchSlot&, const BatchSlot&) = default;
};
/// Where a window has U updates (asynchronous pipelines), some are as many: [U] valid_count, loss
/// and count, [U, kSettings] settings, [U, kVerdict] verdict.
struct HostOperands {
  /// int64 [1]: written with the valid labels of this rank's rows; reduced in place; read. What a
  /// Program does not have, of all of these, is buffer -1.
  Operand valid_count;
  Operand settings;      ///< float64 [kSettings]: written
  Operand dropout_key;   ///< int64 [2]: seed, step: written
  Operand loss;          ///< float32 []: read: the window's loss
  Operand balance_loss;  ///< float32 [layers]: read: the window's balance losses
  Operand z_loss;        ///< float32 [layers]: read: the window's z-losses
  Operand expert_load;   ///< int64 [layers, E]: read: slots of each expert
  Operand count;         ///< float32 []: what the loss divides by
  Operand verdict;       ///< float64 [kVerdict]: read
  friend bool operator==(const HostOperands&, const HostOperands&) = default;
};

struct Program {
  std::string name;  ///< "train", "evaluate"
  int rank = 0;
  int world = 1;
  std::vector<std::string> streams{"compute"};
  std::vector<Group> groups;
  std::vector<Buffer> buffers;  ///< persistent ones first, the same in every Program of a run
  std::vector<Instruction> instructions;
  std::vector<BatchSlot> batches;  ///< one per micro-batch
  HostOperands host;
  std::int64_t private_bytes = 0;  ///< size of each lane, set by the memory map
  std::int64_t window_bytes = 0;
  std::int64_t host_bytes = 0;
  std::vector<std::string> notes;  ///< lines of the plan: choices the compiler made
  friend bool operator==(const Program&, const Program&) = default;
};

[[nodiscard]] std::int64_t lane_bytes(const Program& program, Lane lane);
/// Updates of the window: as many as `valid_count` has numbers.
[[nodiscard]] int updates_of(const Program& program);

/// One text form; `program_from_text(to_text(p)) == p`. The parser throws ConfigError with line and
/// column; it never crashes on any input.
[[nodiscard]] std::string to_text(const Program& program);
[[nodiscard]] Program program_from_text(std::string_view text);

/// The rule "may this instruction run now", written once: when all of these have ended. The
/// previous instruction of its stream (if any) and `after`.
class Order {
 public:
  explicit Order(const Program& program);
  /// -1 when the instruction is the first of its stream.
  [[nodiscard]] InstructionId previous(InstructionId id) const;
  /// Every instruction that must have ended, ascending, without duplicates.
  [[nodiscard]] std::vector<InstructionId> predecessors(InstructionId id) const;
  /// Whether `a` has always ended when `b` starts.
  [[nodiscard]] bool before(InstructionId a, InstructionId b) const;
  /// The last instruction of `stream` that has always ended when `id` starts; -1 if none.
  [[nodiscard]] InstructionId last_before(InstructionId id, StreamId stream) const;

 private:
  std::size_t streams_ = 0;
  std::vector<StreamId> stream_;
  std::vector<InstructionId> previous_;
  std::vector<std::vector<InstructionId>> after_;
  /// [id][stream]: last_before.
  std::vector<InstructionId> clock_;
};

/// Adds the `after` edges that data needs: a reader after the last writer, a writer after the last
/// readers and the last writer, across streams, per byte range of a buffer. Lowering calls it once,
/// at the end, before the memory map. Existing edges stay; edges already implied are left out.
void add_data_edges(Program& program);

/// The memory map: gives every buffer an offset from its lifetime. Persistent buffers first, in
/// order. A transient buffer may take the place of one whose last user is before its own first user
/// by `Order`; across streams that holds only where edges say so. Deterministic. Sets
/// private_bytes, window_bytes and host_bytes.
void map_memory(Program& program);

/// Bytes per category of one rank: persistent buffers as they are; transient: what each category
/// holds at the moment when its lane holds most. `peak` = private_bytes + window_bytes = the
/// categories + `gaps` (alignment, and what the memory map could not fill at that moment). What
/// lies on the host is in none of them but `host`, whatever it is for.
struct MemoryAccount {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, communication = 0,
               workspace = 0, gaps = 0, peak = 0, host = 0;
  friend bool operator==(const MemoryAccount&, const MemoryAccount&) = default;
};
[[nodiscard]] MemoryAccount memory_account(const Program& program);

/// Checks one rank's Program; throws InternalError naming the instruction: operands inside buffers,
/// edges backwards, groups on one stream and containing this rank, no read before a write
/// (persistent buffers and host-written operands count as written), no two buffers that are live at
/// once overlapping, no race (two instructions that touch the same bytes, one of them writing,
/// unordered by `Order`), kernel operand counts, everything aligned, lanes: collectives touch only
/// the window, and only copies and the optimizer the host's memory.
void verify(const Program& program);
/// Checks all ranks' Programs together: each group has the same sequence of collectives on all
/// members with fitting sizes, sends match receives, and running them all with `Order` and
/// rendezvous never deadlocks; names the instructions that would wait for each other.
void verify(const std::vector<Program>& ranks);

}  // namespace sw
