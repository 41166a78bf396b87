#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "device/stream.hpp"

/// The contract of communication; read this first.
///
/// A `World` is this rank's membership of a job. It provides the *window*: the memory that
/// collectives may touch. A `Communicator` is one process group of that world. A collective is
/// *prepared* once, from a `Collective` that says everything about it, and then enqueued on a
/// stream as often as wanted.
namespace sw {

enum class CollectiveKind : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Broadcast,
  Send,
  Receive,
  Barrier,
};
enum class ReduceOp : std::uint8_t { Sum, Max };
/// Direct: each rank pulls its slice from all ranks and adds in rank order (the same bits whatever
/// the cut). Ring: neighbours only; the order of additions depends on the slice, bfloat16 is
/// rounded at each hop, and reduce_scatter uses its input as scratch (undefined afterwards). Ring
/// exists for all_reduce, reduce_scatter and all_gather; the other kinds have one form, Direct, and
/// refuse Ring (traffic.hpp's `algorithm_for` turns a run's choice into a kind's).
enum class Algorithm : std::uint8_t { Direct, Ring };

[[nodiscard]] std::string_view to_text(CollectiveKind kind);  // "all_reduce", …
[[nodiscard]] CollectiveKind collective_from_text(std::string_view text);

/// One piece of the payload. The *whole* buffer is [outer][length][trailing] elements; the group of
/// n ranks cuts `length` by base's balanced `split`. Rank r's *part* is [outer][split(length, n,
/// r).size()][trailing], dense.
///
/// - all_reduce: input whole, output whole (may be the same buffer).
/// - reduce_scatter: input whole, output part (part r of the sum). May be in place when outer == 1:
///   output == input + offset of part r.
/// - all_gather: input part, output whole. May be in place when outer == 1: input == output +
/// offset
///   of part r.
/// - all_to_all: sizes are per peer, see Collective::input_counts; outer == 1, length is ignored.
/// - broadcast: input whole on the root (ignored elsewhere), output whole (may be the same buffer).
/// - send, receive: input / output whole.
struct Segment {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t outer = 1;
  std::int64_t length = 0;
  std::int64_t trailing = 1;
};

/// Everything about one collective. The segments of one call are coalesced: one arrival, one
/// departure.
struct Collective {
  CollectiveKind kind = CollectiveKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  Algorithm algorithm = Algorithm::Direct;
  DType dtype = DType::Float32;
  std::vector<Segment> segments = {};
  int peer = -1;  ///< root of a broadcast; other end of a send or receive (rank in the group)
  /// all_to_all(v): elements this rank sends to / receives from each rank, in rank order,
  /// contiguous in the one segment's input / output.
  std::vector<std::int64_t> input_counts = {};
  std::vector<std::int64_t> output_counts = {};
  /// all_to_all whose counts come with each run (PreparedCollective::set_ranges) and are empty
  /// here: elements that the output has room for; the segment's `length` are those of the input.
  /// -1: not so.
  std::int64_t output_room = -1;
  std::string name = {};  ///< for messages and traces: "gradients layers.3"
};

/// What one execution of a collective did, on this rank.
struct CollectiveResult {
  std::int64_t sent_bytes = 0;  ///< counted where bytes moved: what left this rank for others
  double seconds = 0;           ///< from the start of the task to its end
  double wait_seconds = 0;      ///< of these, waiting for peers to arrive
  std::int64_t calls = 0;
};

/// A collective whose arguments are fixed. Its buffers stay alive and untouched until the stream
/// has passed it.
class PreparedCollective {
 public:
  virtual ~PreparedCollective() = default;
  /// Runs the collective in the calling thread; returns when this rank's output is complete and its
  /// input may be overwritten. Throws CommError.
  virtual void run() = 0;
  /// Of an all_to_all with `output_room`, before a run: elements of the input that go to each rank
  /// of the group, and of the output that come from each. Throws InternalError when they lie
  /// outside.
  virtual void set_ranges(std::span<const Range> inputs, std::span<const Range> outputs);
  /// Sum over the runs since preparation or the last `reset`; valid when no run is in flight.
  [[nodiscard]] virtual CollectiveResult result() const = 0;
  virtual void reset() = 0;
  [[nodiscard]] Task task();  ///< to enqueue it: stream.enqueue(prepared->task())
};

/// One process group: same members, same order, on all of them. Collectives of one communicator run
/// one at a time, in the same order on every member (so one communicator belongs to one stream).
/// Checked before a byte moves: kind, op, dtype, algorithm, sizes, name and sequence number of all
/// members agree, else every member throws CommError naming both sides. A send and its receive
/// concern their two ranks only; they are numbered per pair, and their names may differ.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;  ///< in the group
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;
  /// Checks everything that is local (sizes, buffers inside the window, peer) and throws
  /// ConfigError or InternalError.
  [[nodiscard]] virtual std::unique_ptr<PreparedCollective> prepare(Collective collective) = 0;

  /// Prepare, run, return; for tests and control traffic. Blocks.
  CollectiveResult run(Collective collective);
};

/// A rank's place in a job.
class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Gives this rank a window of `bytes` (huge pages where possible, never /dev/shm) in place of
  /// the one before; collective over the world. Throws DeviceError naming the bytes when memory is
  /// not there. Collectives may only touch the window (`local`: any memory).
  virtual std::span<std::byte> allocate_window(std::int64_t bytes) = 0;

  /// A communicator over `members` (ranks of the world, ascending, this rank among them); every
  /// member calls it with the same arguments. `name` is e.g. "tp" or "dp": it must tell concurrent
  /// groups with the same members apart. Groups made in the same order on all of their members.
  [[nodiscard]] virtual std::unique_ptr<Communicator> make_communicator(
      std::string name, std::vector<int> members) = 0;

  /// Says what this rank is doing now; wait-free. `phase` must outlive the world (a literal or
  /// interned). Deadlines count from a missing rank's last progress, and messages quote it: "rank 3
  /// is in 'forward layers.2.attention' (instruction 117, 31.2 s ago)".
  virtual void publish_progress(std::int64_t instruction, const char* phase) = 0;

  /// The first error wins: records it and makes every wait of every rank throw CommError with it.
  virtual void abort(std::string_view message) = 0;
  /// The message of the first abort, empty if there was none.
  [[nodiscard]] virtual std::string aborted() const = 0;
};

struct WorldOptions {
  double deadline_s = 30;
  int threads_per_rank = 1;  ///< waits spin briefly only while ranks x threads fit the cores
};

/// The ranks of a `local` job, to be handed one each to threads of this process.
[[nodiscard]] std::vector<std::unique_ptr<World>> make_local_worlds(int ranks,
                                                                    const WorldOptions& options);

/// Shared state of a `shm` job, made by the parent before it forks and execs ranks: a memfd that
/// children inherit by number.
class ShmJob {
 public:
  ShmJob(int ranks, const WorldOptions& options);
  ~ShmJob();
  ShmJob(const ShmJob&) = delete;
  ShmJob& operator=(const ShmJob&) = delete;
  /// The descriptor that children must inherit (it is not close-on-exec).
  [[nodiscard]] int descriptor() const;
  /// Parent side: aborts all ranks with `message`, e.g. after waitpid told of a death.
  void abort(std::string_view message);
  [[nodiscard]] std::string aborted() const;
  /// Parent side: what rank r last published: "is in 'forward …' (instruction 117, 0.3 s ago)".
  [[nodiscard]] std::string progress(int rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
/// Child side: joins the job behind the inherited descriptor as `rank`. Throws CommError after the
/// deadline if the others do not come.
[[nodiscard]] std::unique_ptr<World> join_shm_world(int descriptor, int rank);

}  // namespace sw
