#include "runtime/prepared_work.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "kernels/kernel.hpp"
#include "program/collective.hpp"

namespace sw {
namespace {

/// Rows before a dim of an operand, and the bytes of one element of that dim.
struct Around {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
};
Around around(const Operand& operand, std::size_t dim) {
  Around result{1, size_of(operand.dtype)};
  for (std::size_t d = 0; d < operand.shape.size(); ++d) {
    if (d < dim) result.outer *= operand.shape[d];
    if (d > dim) result.inner *= operand.shape[d];
  }
  return result;
}

/// Of memory whose last bytes may be left alone: so that the measured peak does not depend on
/// that, they count as touched. (A kernel is handed its scratch whole, and which thread's part of
/// it gets written is up to who takes which tile.)
void touch_end(std::byte* memory, std::int64_t bytes) {
  const std::int64_t end = std::min<std::int64_t>(bytes, 8);
  if (end > 0) std::memset(memory + bytes - end, 0, static_cast<std::size_t>(end));
}

class Preparation {
 public:
  Preparation(const Program& program, const Instruction& instruction, const RankMemory& memory,
              const std::vector<std::unique_ptr<Communicator>>& communicators,
              const ExecutorOptions& options, int threads)
      : program_(program),
        instruction_(instruction),
        memory_(memory),
        communicators_(communicators),
        options_(options),
        threads_(threads) {}

  PreparedWork operator()(const KernelWork& work) const {
    kernels::KernelCall call{.op = work.op,
                             .parameters = work.parameters,
                             .inputs = views(instruction_.inputs),
                             .outputs = views(instruction_.outputs),
                             .accumulate = work.accumulate};
    std::byte* scratch = memory_.address(program_, instruction_.scratch);
    const std::int64_t scratch_bytes = scratch == nullptr ? 0 : bytes_of(instruction_.scratch);
    const std::int64_t needed = kernels::scratch_bytes(call, threads_);
    SW_CHECK(needed <= scratch_bytes, "'{}' needs {} bytes of scratch on {} threads and has {}",
             instruction_.name, needed, threads_, scratch_bytes);
    touch_end(scratch, scratch_bytes);
    return {kernels::prepare(call, scratch, threads_)};
  }

  PreparedWork operator()(const SliceWork& work) const {
    const Operand& input = instruction_.inputs[0];
    const Operand& output = instruction_.outputs[0];
    const auto dim = static_cast<std::size_t>(work.dim);
    const auto [outer, inner] = around(input, dim);
    const std::int64_t stride = input.shape[dim] * inner;
    const std::int64_t block = output.shape[dim] * inner;
    const std::byte* from = memory_.address(program_, input) + work.start * inner;
    std::byte* to = memory_.address(program_, output);
    const auto copy_block = [=](std::int64_t i, int) {
      std::memcpy(to + i * block, from + i * stride, static_cast<std::size_t>(block));
    };
    // By reference: a std::function made at run time would allocate.
    return {[outer = outer, copy_block](Team& team) { team.run(outer, std::cref(copy_block)); }};
  }

  PreparedWork operator()(const JoinWork& work) const {
    struct Part {
      const std::byte* from;
      std::int64_t offset;  ///< in a row of the whole
      std::int64_t bytes;   ///< of a row
    };
    const Operand& output = instruction_.outputs[0];
    const auto dim = static_cast<std::size_t>(work.dim);
    const auto [outer, inner] = around(output, dim);
    std::vector<Part> parts;
    std::int64_t row = 0;
    for (const Operand& input : instruction_.inputs) {
      parts.push_back({memory_.address(program_, input), row, input.shape[dim] * inner});
      row += parts.back().bytes;
    }
    std::byte* to = memory_.address(program_, output);
    const auto copy_row = [=, parts = std::move(parts)](std::int64_t i, int) {
      for (const Part& part : parts) {
        std::memcpy(to + i * row + part.offset, part.from + i * part.bytes,
                    static_cast<std::size_t>(part.bytes));
      }
    };
    return {[outer = outer, copy_row](Team& team) { team.run(outer, std::cref(copy_row)); }};
  }

  /// A link slower than memory is modelled by waiting, as for a copy that the device does alone.
  PreparedWork operator()(const CopyWork&) const {
    const std::byte* from = memory_.address(program_, instruction_.inputs[0]);
    std::byte* to = memory_.address(program_, instruction_.outputs[0]);
    const std::int64_t bytes = bytes_of(instruction_.inputs[0]);
    const double rate = options_.host_link_bytes_per_s;
    const std::chrono::duration<double> least(rate > 0 ? static_cast<double>(bytes) / rate : 0);
    auto count = std::make_unique<CopyCount>();
    const auto copy = [=, count = count.get()](Team&) {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point start = Clock::now();
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(least));
      ++count->calls;
      count->bytes += bytes;
      count->seconds += std::chrono::duration<double>(Clock::now() - start).count();
    };
    return {.run = copy, .copies = std::move(count)};
  }

  PreparedWork operator()(const CollectiveWork& work) const {
    const CollectiveSizes sizes = sizes_of(instruction_, options_.algorithm);
    Collective collective{.kind = work.kind,
                          .op = work.op,
                          .algorithm = sizes.algorithm,
                          .dtype = sizes.dtype,
                          .segments = {},
                          .peer = work.peer,
                          .input_counts = work.input_counts,
                          .output_counts = work.output_counts,
                          .name = instruction_.name};
    const bool routed = work.routing != Routing::None;
    if (routed) {
      const Operand& output = instruction_.outputs[0];
      collective.output_room = elements(output.shape);
      // How much of it is written is up to the routes.
      touch_end(memory_.address(program_, output), bytes_of(output));
    }
    for (std::size_t i = 0; i < sizes.segments.size(); ++i) {
      const Extent& extent = sizes.segments[i];
      collective.segments.push_back({address(instruction_.inputs, i),
                                     address(instruction_.outputs, i), extent.outer, extent.length,
                                     extent.trailing});
    }
    std::unique_ptr<PreparedCollective> prepared =
        communicators_[static_cast<std::size_t>(work.group)]->prepare(std::move(collective));
    if (routed) {
      return prepare_exchange(program_, instruction_, memory_, std::move(prepared));
    }
    PreparedCollective* target = prepared.get();
    return {[target](Team&) { target->run(); }, std::move(prepared)};
  }

  PreparedWork operator()(const SlotWork&) const {
    return {prepare_slot_work(program_, instruction_, memory_)};
  }
  PreparedWork operator()(const WindowWork&) const {
    return {prepare_window_work(program_, instruction_, memory_)};
  }
  PreparedWork operator()(const OptimizerWork&) const {
    return {prepare_optimizer_work(program_, instruction_, memory_)};
  }

  PreparedWork operator()(const ZeroWork&) const {
    std::byte* to = memory_.address(program_, instruction_.outputs[0]);
    const std::int64_t bytes = bytes_of(instruction_.outputs[0]);
    constexpr std::int64_t kBlock = 1 << 20;
    const auto clear_block = [=](std::int64_t i, int) {
      std::memset(to + i * kBlock, 0,
                  static_cast<std::size_t>(std::min(kBlock, bytes - i * kBlock)));
    };
    const std::int64_t blocks = (bytes + kBlock - 1) / kBlock;
    return {[=](Team& team) { team.run(blocks, std::cref(clear_block)); }};
  }

 private:
  [[nodiscard]] std::vector<kernels::View> views(const std::vector<Operand>& operands) const {
    std::vector<kernels::View> list;
    for (const Operand& operand : operands) {
      list.push_back({memory_.address(program_, operand), operand.dtype, operand.shape});
    }
    return list;
  }
  [[nodiscard]] std::byte* address(const std::vector<Operand>& operands, std::size_t i) const {
    return i < operands.size() ? memory_.address(program_, operands[i]) : nullptr;
  }

  const Program& program_;
  const Instruction& instruction_;
  const RankMemory& memory_;
  const std::vector<std::unique_ptr<Communicator>>& communicators_;
  const ExecutorOptions& options_;
  int threads_;
};

/// What a round that may not be needed writes counts as touched: its memory is planned.
void touch_outputs(const Program& program, const Instruction& instruction,
                   const RankMemory& memory) {
  for (const Operand& output : instruction.outputs) {
    if (!program.buffers[static_cast<std::size_t>(output.buffer)].persistent) {
      touch_end(memory.address(program, output), bytes_of(output));
    }
  }
}

}  // namespace

PreparedWork prepare_work(const Program& program, const Instruction& instruction,
                          const RankMemory& memory,
                          const std::vector<std::unique_ptr<Communicator>>& communicators,
                          const ExecutorOptions& options, int threads) {
  if (instruction.round > 0) touch_outputs(program, instruction, memory);
  return std::visit(Preparation(program, instruction, memory, communicators, options, threads),
                    instruction.work);
}

}  // namespace sw
