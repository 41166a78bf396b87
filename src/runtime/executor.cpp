#include "runtime/executor.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "device/stream.hpp"
#include "device/team.hpp"
#include "program/collective.hpp"
#include "runtime/prepared_work.hpp"

namespace sw {
namespace {

using Clock = std::chrono::steady_clock;

/// Looks this often before sleeping: about a microsecond, the distance of instructions that nearly
/// meet.
constexpr int kSpins = 200;

std::string_view to_text(Phase phase) {
  switch (phase) {
    case Phase::Forward:
      return "forward";
    case Phase::Backward:
      return "backward";
    case Phase::Window:
      break;
  }
  return "window";
}

/// The number of the run in which an instruction last ended; one writer, any number of waiters.
class DoneFlag {
 public:
  void set(std::uint32_t run) {
    run_.store(run, std::memory_order_release);
    run_.notify_all();
  }
  void wait(std::uint32_t run, bool may_spin) const {
    for (int i = 0; may_spin && i < kSpins; ++i) {
      if (run_.load(std::memory_order_acquire) == run) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    for (std::uint32_t seen = run_.load(std::memory_order_acquire); seen != run;
         seen = run_.load(std::memory_order_acquire)) {
      run_.wait(seen, std::memory_order_acquire);
    }
  }

 private:
  std::atomic<std::uint32_t> run_ = 0;
};

/// An instruction with everything it needs.
struct Step {
  InstructionId id = 0;
  PreparedWork work;
  std::vector<const DoneFlag*> after;
  DoneFlag* done = nullptr;              ///< null when no other stream waits for it
  const std::int32_t* rounds = nullptr;  ///< runs only if there are more than `round`
  std::int32_t round = 0;
  std::string phase;  ///< "forward layers.2.attention"
};

}  // namespace

struct Executor::State {
  /// What one stream runs; stream 0 is the calling thread.
  struct Lane {
    State* state = nullptr;
    std::vector<Step> steps;
    std::unique_ptr<Team> own_team;
    Team* team = nullptr;
    std::unique_ptr<Stream> stream;
    bool publishes = false;
  };

  State(const Program& of, World& in, const ExecutorOptions& with)
      : program(of), world(in), options(with), flags(of.instructions.size()) {}

  const Program& program;
  World& world;
  const ExecutorOptions options;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<DoneFlag> flags;
  std::vector<Lane> lanes;
  Timeline timeline;
  std::uint32_t run = 0;
  Clock::time_point start;
  /// The first error wins; who claims it stores it, the caller reads it when all lanes have ended.
  std::atomic<bool> failed = false;
  std::exception_ptr error;

  void make_lanes(Team& team);
  void add_steps(const RankMemory& memory);
  void run_lane(Lane& lane);
  bool run_step(Lane& lane, Step& step);
  void fail(const std::exception_ptr& cause);
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
};

void Executor::State::make_lanes(Team& team) {
  lanes.resize(program.streams.size());
  for (std::size_t s = 0; s < lanes.size(); ++s) {
    Lane& lane = lanes[s];
    lane.state = this;
    lane.publishes = s == 0;  // progress has one writer
    lane.team = &team;
    if (s == 0) continue;
    lane.own_team = std::make_unique<Team>(1);
    lane.team = lane.own_team.get();
    lane.stream = make_thread_stream(program.streams[s], options.may_spin);
  }
}

void Executor::State::add_steps(const RankMemory& memory) {
  for (const Group& group : program.groups) {
    communicators.push_back(
        world.make_communicator(communicator_name(program, group), group.members));
  }
  const Order order(program);
  std::vector<bool> awaited(program.instructions.size(), false);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    Lane& lane = lanes[static_cast<std::size_t>(instruction.stream)];
    Step step;
    step.id = static_cast<InstructionId>(i);
    step.work =
        prepare_work(program, instruction, memory, communicators, options, lane.team->threads());
    step.rounds = pointer<std::int32_t>(program, memory, instruction.rounds);
    step.round = instruction.round;
    for (const InstructionId before : order.predecessors(step.id)) {
      if (before == order.previous(step.id)) continue;
      step.after.push_back(&flags[static_cast<std::size_t>(before)]);
      awaited[static_cast<std::size_t>(before)] = true;
    }
    step.phase = fmt::format("{} {}", to_text(instruction.phase), instruction.name);
    lane.steps.push_back(std::move(step));
    timeline.push_back({static_cast<InstructionId>(i), 0, 0});
  }
  for (Lane& lane : lanes) {
    for (Step& step : lane.steps) {
      const auto i = static_cast<std::size_t>(step.id);
      if (awaited[i]) step.done = &flags[i];
    }
  }
}

void Executor::State::run_lane(Lane& lane) {
  std::size_t next = 0;
  try {
    while (next < lane.steps.size() && run_step(lane, lane.steps[next])) ++next;
  } catch (...) {
    fail(std::current_exception());
  }
  // After a failure nobody must wait for what will not happen.
  for (; next < lane.steps.size(); ++next) {
    if (lane.steps[next].done != nullptr) lane.steps[next].done->set(run);
  }
}

/// False when the run has failed.
bool Executor::State::run_step(Lane& lane, Step& step) {
  for (const DoneFlag* before : step.after) before->wait(run, options.may_spin);
  if (failed.load(std::memory_order_acquire)) return false;
  if (lane.publishes) world.publish_progress(step.id, step.phase.c_str());
  TimelineEntry& entry = timeline[static_cast<std::size_t>(step.id)];
  entry.start = now();
  if (step.rounds == nullptr || *step.rounds > step.round) step.work.run(*lane.team);
  entry.end = now();
  if (step.done != nullptr) step.done->set(run);
  return true;
}

void Executor::State::fail(const std::exception_ptr& cause) {
  if (failed.exchange(true, std::memory_order_acq_rel)) return;
  error = cause;
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& exception) {
    world.abort(exception.what());
  } catch (...) {
    world.abort("an unknown error");
  }
}

Executor::Executor(const Program& program, World& world, RankMemory& memory, Team& team,
                   const ExecutorOptions& options)
    : state_(std::make_unique<State>(program, world, options)) {
  SW_CHECK(program.rank == world.rank() && program.world == world.size(),
           "the Program of rank {} of {} cannot run on rank {} of {}", program.rank, program.world,
           world.rank(), world.size());
  SW_CHECK(options.threads == team.threads(), "a team of {} threads where {} are meant",
           team.threads(), options.threads);
  state_->make_lanes(team);
  state_->add_steps(memory);
}

Executor::~Executor() = default;

void Executor::run() {
  State& state = *state_;
  SW_CHECK(!state.failed, "a run of '{}' after one that failed", state.program.name);
  ++state.run;
  state.start = Clock::now();
  for (State::Lane& lane : state.lanes) {
    if (lane.stream == nullptr) continue;
    const auto task = [](void* argument) {
      auto& mine = *static_cast<State::Lane*>(argument);
      mine.state->run_lane(mine);
    };
    lane.stream->enqueue({task, &lane});
  }
  state.run_lane(state.lanes.front());
  for (State::Lane& lane : state.lanes) {
    if (lane.stream != nullptr) lane.stream->synchronize();
  }
  if (state.failed) std::rethrow_exception(state.error);
}

Ledger Executor::ledger() const {
  Ledger ledger;
  for (const State::Lane& lane : state_->lanes) {
    for (const Step& step : lane.steps) {
      const Instruction& instruction =
          state_->program.instructions[static_cast<std::size_t>(step.id)];
      if (!communicates(instruction)) continue;
      LedgerEntry& entry = ledger[ledger_key(state_->program, instruction)];
      if (const CopyCount* copies = step.work.copies.get()) {
        entry.calls += copies->calls;
        entry.sent_bytes += copies->bytes;
        entry.seconds += copies->seconds;
        continue;
      }
      const CollectiveResult result = step.work.collective->result();
      entry.calls += result.calls;
      entry.sent_bytes += result.sent_bytes;
      entry.seconds += result.seconds;
      entry.wait_seconds += result.wait_seconds;
    }
  }
  return ledger;
}

Ledger Executor::routed() const {
  Ledger ledger;
  for (const State::Lane& lane : state_->lanes) {
    for (const Step& step : lane.steps) {
      const RoutedCount* routed = step.work.routed.get();
      if (routed == nullptr) continue;
      const auto id = static_cast<std::size_t>(step.id);
      LedgerEntry& entry = ledger[ledger_key(state_->program, state_->program.instructions[id])];
      entry.calls += routed->calls;
      entry.sent_bytes += routed->sent_bytes;
    }
  }
  return ledger;
}

void Executor::reset_ledger() {
  for (State::Lane& lane : state_->lanes) {
    for (Step& step : lane.steps) {
      if (step.work.routed != nullptr) *step.work.routed = {};
      if (step.work.collective != nullptr) step.work.collective->reset();
      if (step.work.copies != nullptr) *step.work.copies = {};
    }
  }
}

const Timeline& Executor::timeline() const { return state_->timeline; }

}  // namespace sw
