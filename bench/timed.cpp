#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "lower/compile.hpp"
#include "lower/schedule.hpp"
#include "model/model.hpp"
#include "program/collective.hpp"
#include "program/ledger.hpp"
#include "runtime/executor.hpp"

/// timed pipeline|overlap: the Programs of a small model, run by the executor on one thread a rank,
/// with work that takes the time that it is given: each matrix product waits in proportion to its
/// flops, and (overlap) each collective in proportion to its bytes. So many stages fit on few
/// cores, and what is measured is the schedule. Prints a line of JSON a case.
///
///   pipeline   share of forward and backward in which stages compute nothing
///   overlap    share of the time of gradients and parameters on the wire during which a rank
///   computes;
///              the wire is throttled so that they take half as long as computing
namespace sw {
namespace {

/// A copy over a link of this speed is a timer: 1 KiB takes 1 ms.
constexpr double kLink = 1024e3;
constexpr int kSteps = 2;

/// Seconds that an instruction takes besides what it takes anyway.
using Seconds = std::function<double(const Program&, const Instruction&)>;

/// Adds a wait after each instruction that is to take time, on its stream and in its phase.
Program with_waits(const Program& from, const Seconds& seconds) {
  Program program = from;
  program.instructions.clear();
  const Operand source{from.host.loss.buffer, 0, DType::UInt8, {}};
  std::vector<InstructionId> place(from.instructions.size());
  for (std::size_t i = 0; i < from.instructions.size(); ++i) {
    Instruction instruction = from.instructions[i];
    for (InstructionId& edge : instruction.after) {
      edge = place[static_cast<std::size_t>(edge)];
    }
    program.instructions.push_back(instruction);
    if (const double wait = seconds(from, instruction); wait > 0) {
      const auto bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(wait * kLink));
      const auto buffer = static_cast<BufferId>(program.buffers.size());
      for (const Lane lane : {Lane::Private, Lane::Host}) {
        program.buffers.push_back({"timer", lane, Category::Workspace, false, bytes, -1});
      }
      Instruction timer;
      timer.name = "timer of " + instruction.name;
      timer.phase = instruction.phase;
      timer.micro_batch = instruction.micro_batch;
      timer.stream = instruction.stream;
      timer.outputs = {{buffer, 0, DType::UInt8, {bytes}}};
      timer.work = ZeroWork{};
      program.instructions.push_back(timer);
      timer.work = CopyWork{};
      timer.inputs = timer.outputs;
      timer.outputs = {{buffer + 1, 0, DType::UInt8, {bytes}}};
      program.instructions.push_back(timer);
    }
    place[i] = static_cast<InstructionId>(program.instructions.size()) - 1;
  }
  map_memory(program);
  verify(program);
  return program;
}

/// The timelines of each rank in the last of some steps.
std::vector<Timeline> run(const std::vector<Program>& programs) {
  WorldOptions world_options;
  world_options.deadline_s = 60;
  const auto worlds = make_local_worlds(static_cast<int>(programs.size()), world_options);
  std::vector<Timeline> timelines(programs.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    ranks.emplace_back([&, r] {
      const Program& program = programs[r];
      const Program* const list[] = {&program};
      RankMemory memory(*worlds[r], list);
      for (std::size_t b = 0; b < program.buffers.size(); ++b) {
        const Operand whole{static_cast<BufferId>(b), 0, DType::UInt8, {program.buffers[b].bytes}};
        std::memset(memory.address(program, whole), 0, static_cast<std::size_t>(bytes_of(whole)));
      }
      Team team(1);
      Executor executor(program, *worlds[r], memory, team,
                        {.may_spin = false, .host_link_bytes_per_s = kLink});
      for (int step = 0; step < kSteps; ++step) {
        executor.run();
      }
      timelines[r] = executor.timeline();
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return timelines;
}

CompileOptions small_model(std::int64_t layers) {
  CompileOptions options;
  options.model.vocabulary = 16;
  options.model.hidden = 64;
  options.model.layers = layers;
  options.model.heads = options.model.kv_heads = 2;
  options.model.head_dim = 32;
  options.model.feed_forward = 128;
  options.model.max_positions = 8;
  options.parallel.sequence_parallel = false;
  options.parallel.bucket_mib = 0.01;
  options.sequence = 8;
  return options;
}

std::vector<Program> programs_of(const CompileOptions& options) {
  const Compilation compilation(options);
  std::vector<Program> programs;
  for (int rank = 0; rank < compilation.world(); ++rank) {
    programs.push_back(compilation.training(rank));
  }
  return programs;
}

bool computes(const Instruction& instruction) {
  return instruction.stream == 0 && !std::holds_alternative<CollectiveWork>(instruction.work);
}

double flops_of(const Program& program) {
  double flops = 0;
  for (const Instruction& instruction : program.instructions) {
    flops += instruction.flops;
  }
  return flops;
}

// --- pipeline ---

struct Case {
  const char* name;
  PipelineSchedule schedule;
  int chunks;
  /// (P - 1) / (closed · M + P - 1) of the time is idle; 0: no closed form.
  int closed;
};
constexpr Case kCases[] = {{"gpipe", PipelineSchedule::GPipe, 1, 1},
                           {"1f1b", PipelineSchedule::OneForwardOneBackward, 1, 1},
                           {"interleaved", PipelineSchedule::Interleaved, 2, 2},
                           {"zero_bubble", PipelineSchedule::ZeroBubble, 1, 3},
                           {"zero_bubble_v", PipelineSchedule::ZeroBubbleV, 2, 0}};

/// From the first forward to the last backward of any stage: the share in which stages do nothing.
double idle_share(const std::vector<Program>& programs, const std::vector<Timeline>& timelines) {
  double begin = 1e9;
  double end = 0;
  double busy = 0;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    for (const TimelineEntry& entry : timelines[r]) {
      const Instruction& instruction =
          programs[r].instructions[static_cast<std::size_t>(entry.instruction)];
      if (instruction.phase == Phase::Window || !computes(instruction)) {
        continue;
      }
      begin = std::min(begin, entry.start);
      end = std::max(end, entry.end);
      busy += entry.end - entry.start;
    }
  }
  return 1 - busy / ((end - begin) * static_cast<double>(programs.size()));
}

/// The same of the schedule itself, when every action takes one unit of time and messages none.
double idle_of_unit_times(const CompileOptions& options) {
  const Stages stages = cut_into_stages(
      build(options.model, options.micro_batch, options.sequence, options.precision),
      options.parallel);
  const PipelineOrder order =
      pipeline_order(options.parallel.pipeline, stages, static_cast<int>(options.accumulation));
  int last = 0;
  int busy = 0;
  for (const std::vector<TimedAction>& actions : unit_times(order, stages)) {
    for (const TimedAction& action : actions) {
      last = std::max(last, action.end);
      busy += action.end - action.start;
    }
  }
  return 1 - static_cast<double>(busy) / (static_cast<double>(last) * stages.stages);
}

void measure_pipelines() {
  constexpr double kSecondsPerForward = 0.06;  // of a stage and micro-batch
  for (const int stages : {4, 8}) {
    for (const Case& c : kCases) {
      const int micro_batches = 2 * stages;
      CompileOptions options = small_model(2 * stages);
      options.parallel.layout.pp = stages;
      options.parallel.pipeline = c.schedule;
      options.parallel.virtual_stages = c.schedule == PipelineSchedule::Interleaved ? c.chunks : 1;
      options.parallel.stage_layers.assign(static_cast<std::size_t>(stages * c.chunks),
                                           2 / c.chunks);
      options.accumulation = micro_batches;
      std::vector<Program> programs = programs_of(options);
      const double forward = flops_of(programs[1]) / 3 / micro_batches;
      for (Program& program : programs) {
        program = with_waits(program, [&](const Program&, const Instruction& instruction) {
          const auto* kernel = std::get_if<KernelWork>(&instruction.work);
          // Embedding and head would make the ends of the pipeline slower than the rest.
          const bool product = kernel != nullptr && kernel->op == "einsum" &&
                               instruction.name.find("layers.") != std::string::npos;
          return product ? instruction.flops / forward * kSecondsPerForward : 0;
        });
      }
      verify(programs);
      const double p1 = stages - 1;
      const Json line = {
          {"stages", stages},
          {"micro_batches", micro_batches},
          {"schedule", c.name},
          {"unit_times", idle_of_unit_times(options)},
          {"closed_form", c.closed == 0 ? Json() : Json(p1 / (c.closed * micro_batches + p1))},
          {"idle", idle_share(programs, run(programs))}};
      fmt::print("{}\n", line.dump());
    }
  }
}

// --- overlap ---

/// Gradients and parameters; sums of single numbers are on the compute stream.
bool on_wire(const Instruction& instruction) { return instruction.stream != 0; }

void measure_overlap() {
  constexpr double kSeconds = 1.2;  // of computing, a step
  for (const int zero : {0, 3}) {
    CompileOptions options = small_model(24);
    options.parallel.layout.dp = 2;
    options.parallel.zero = zero;
    options.accumulation = 1;
    std::vector<Program> programs = programs_of(options);
    const auto bytes_of_wire = [](const Program& program, const Instruction& instruction) {
      return on_wire(instruction)
                 ? static_cast<double>(sent_bytes(program, instruction, Algorithm::Direct))
                 : 0;
    };
    double bytes = 0;
    for (const Instruction& instruction : programs[0].instructions) {
      bytes += bytes_of_wire(programs[0], instruction);
    }
    const double flops = flops_of(programs[0]);
    for (Program& program : programs) {
      program = with_waits(program, [&](const Program& in, const Instruction& instruction) {
        return on_wire(instruction) ? bytes_of_wire(in, instruction) / bytes * kSeconds / 2
                                    : instruction.flops / flops * kSeconds;
      });
    }
    verify(programs);
    const Timeline timeline = run(programs).front();
    double wire = 0;
    double hidden = 0;
    for (const TimelineEntry& entry : timeline) {
      // The timers alone: a collective itself also waits for the other rank.
      const Instruction& timer =
          programs[0].instructions[static_cast<std::size_t>(entry.instruction)];
      if (!on_wire(timer) || !std::holds_alternative<CopyWork>(timer.work)) {
        continue;
      }
      wire += entry.end - entry.start;
      for (const TimelineEntry& other : timeline) {
        if (computes(programs[0].instructions[static_cast<std::size_t>(other.instruction)])) {
          hidden +=
              std::max(0.0, std::min(entry.end, other.end) - std::max(entry.start, other.start));
        }
      }
    }
    const Json line = {{"zero", zero}, {"wire_seconds", wire}, {"hidden", hidden / wire}};
    fmt::print("{}\n", line.dump());
  }
}

}  // namespace
}  // namespace sw

int main(int count, char** words) {
  const std::string what = count == 2 ? words[1] : "";
  if (what == "pipeline") {
    sw::measure_pipelines();
  } else if (what == "overlap") {
    sw::measure_overlap();
  } else {
    fmt::print(stderr, "usage: timed pipeline|overlap\n");
    return 2;
  }
  return 0;
}
