#include <algorithm>
#include <set>

#include "program/accesses.hpp"
#include "program/collective.hpp"
#include "program/lifetime.hpp"
#include "program/program.hpp"
#include "program/verify_work.hpp"

namespace sw {
namespace {

void check_groups(const Program& program) {
  std::set<std::pair<std::string, std::vector<int>>> seen;
  for (const Group& group : program.groups) {
    const std::vector<int>& members = group.members;
    SW_CHECK(group.stream >= 0 && static_cast<std::size_t>(group.stream) < program.streams.size(),
             "rank {}: group '{}' is on stream {} of {}", program.rank, group.axis, group.stream,
             program.streams.size());
    SW_CHECK(members.size() >= 2, "rank {}: group '{}' has {} members; one rank needs no group",
             program.rank, group.axis, members.size());
    SW_CHECK(std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) ==
                     members.end() &&
                 members.front() >= 0 && members.back() < program.world,
             "rank {}: the members of group '{}' must ascend and lie in [0, {})", program.rank,
             group.axis, program.world);
    SW_CHECK(std::binary_search(members.begin(), members.end(), program.rank),
             "rank {} is no member of its group '{}'", program.rank, group.axis);
    SW_CHECK(seen.emplace(communicator_name(program, group), members).second,
             "rank {}: two groups '{}' on one stream with the same members", program.rank,
             group.axis);
  }
}

void check_buffers(const Program& program) {
  bool transient_seen = false;
  for (const Buffer& buffer : program.buffers) {
    const std::int64_t lane = lane_bytes(program, buffer.lane);
    SW_CHECK(buffer.bytes >= 0 && buffer.offset >= 0 && buffer.offset % kAlignment == 0,
             "rank {}: buffer '{}' of {} bytes at offset {}: not aligned to {}", program.rank,
             buffer.name, buffer.bytes, buffer.offset, kAlignment);
    SW_CHECK(buffer.bytes == 0 || (buffer.offset <= lane && buffer.bytes <= lane - buffer.offset),
             "rank {}: buffer '{}' of {} bytes at offset {} leaves its lane of {}", program.rank,
             buffer.name, buffer.bytes, buffer.offset, lane);
    SW_CHECK(!(transient_seen && buffer.persistent),
             "rank {}: persistent buffer '{}' stands after a transient one", program.rank,
             buffer.name);
    transient_seen = transient_seen || !buffer.persistent;
  }
}

void check_stream_and_edges(const Program& program, InstructionId id) {
  const InstructionCheck check(program, id);
  const Instruction& instruction = program.instructions[static_cast<std::size_t>(id)];
  check(instruction.stream >= 0 &&
            static_cast<std::size_t>(instruction.stream) < program.streams.size(),
        "stream {} of {}", instruction.stream, program.streams.size());
  InstructionId last = -1;
  for (const InstructionId edge : instruction.after) {
    check(edge > last && edge < id, "its edges must ascend and lead from earlier instructions: {}",
          edge);
    check(program.instructions[static_cast<std::size_t>(edge)].stream != instruction.stream,
          "an edge from instruction {} of its own stream", edge);
    last = edge;
  }
}

/// No byte is read before it is written, and whatever touches the same byte is ordered.
void check_races(const Program& program, const Order& order) {
  History history(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto id = static_cast<InstructionId>(i);
    const InstructionCheck check(program, id);
    for (const InstructionId other : history.conflicts(id)) {
      check(order.before(other, id),
            "a race with {}: both touch the same bytes and nothing orders them",
            place_of(program, other));
    }
    if (const Access* access = history.unwritten(id)) {
      check(false, "reads bytes [{}, {}) of '{}' before all of them are written", access->begin,
            access->end, program.buffers[static_cast<std::size_t>(access->buffer)].name);
    }
    history.record(id);
  }
}

void check_overlap(const Program& program, const Lifetimes& lifetimes, Lane lane) {
  std::vector<BufferId> list;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const auto id = static_cast<BufferId>(b);
    const Buffer& buffer = program.buffers[b];
    if (buffer.lane == lane && buffer.bytes > 0 && lifetimes.used(id)) list.push_back(id);
  }
  const auto buffer = [&](BufferId b) -> const Buffer& {
    return program.buffers[static_cast<std::size_t>(b)];
  };
  std::sort(list.begin(), list.end(),
            [&](BufferId a, BufferId b) { return buffer(a).offset < buffer(b).offset; });
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Buffer& a = buffer(list[i]);
    for (std::size_t j = i + 1; j < list.size() && buffer(list[j]).offset < a.offset + a.bytes;
         ++j) {
      SW_CHECK(!lifetimes.overlap(list[i], list[j]),
               "rank {}: buffers '{}' and '{}' are live at once and share bytes (users {} to {}, "
               "and {} to {})",
               program.rank, a.name, buffer(list[j]).name, lifetimes.first(list[i]),
               lifetimes.last(list[i]), lifetimes.first(list[j]), lifetimes.last(list[j]));
    }
  }
}

void check_host(const Program& program) {
  const auto is = [&](std::string_view what, const Operand& operand, DType dtype,
                      const Shape& shape) {
    SW_CHECK(operand.buffer < 0 || (operand.dtype == dtype && operand.shape == shape),
             "rank {}: host operand {} must be {} {} and is {} {}", program.rank, what,
             to_text(dtype), to_text(shape), to_text(operand.dtype), to_text(operand.shape));
  };
  for (const BatchSlot& batch : program.batches) {
    is("tokens", batch.tokens, DType::Int32, batch.tokens.shape);
    is("labels", batch.labels, DType::Int32, batch.labels.shape);
    is("positions", batch.positions, DType::Int32, batch.positions.shape);
    is("documents", batch.documents, DType::Int32, batch.documents.shape);
  }
  is("dropout_key", program.host.dropout_key, DType::Int64, {2});
  is("balance_loss", program.host.balance_loss, DType::Float32, program.host.balance_loss.shape);
  is("z_loss", program.host.z_loss, DType::Float32, program.host.z_loss.shape);
  is("expert_load", program.host.expert_load, DType::Int64, program.host.expert_load.shape);
  const int updates = updates_of(program);
  const auto of_updates = [&](std::string_view what, const Operand& operand, DType dtype,
                              Shape shape) {
    if (updates > 1) shape.insert(shape.begin(), updates);
    is(what, operand, dtype, shape);
  };
  is("valid_count", program.host.valid_count, DType::Int64, {updates});
  of_updates("settings", program.host.settings, DType::Float64, {kSettings});
  of_updates("loss", program.host.loss, DType::Float32, {});
  of_updates("count", program.host.count, DType::Float32, {});
  of_updates("verdict", program.host.verdict, DType::Float64, {kVerdict});
}

}  // namespace

int updates_of(const Program& program) {
  const Shape& counts = program.host.valid_count.shape;
  return counts.empty() ? 1 : static_cast<int>(counts.front());
}

void verify(const Program& program) {
  SW_CHECK(program.world >= 1 && program.rank >= 0 && program.rank < program.world,
           "rank {} in a world of {}", program.rank, program.world);
  SW_CHECK(!program.streams.empty(), "rank {}: a Program without streams", program.rank);
  check_groups(program);
  check_buffers(program);
  check_host(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto id = static_cast<InstructionId>(i);
    check_stream_and_edges(program, id);
    (void)accesses(program, program.instructions[i]);  // operands lie inside their buffers
    verify_work(program, id);
  }
  const Order order(program);
  check_races(program, order);
  const Lifetimes lifetimes(program, order);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    SW_CHECK(program.buffers[b].persistent || lifetimes.used(static_cast<BufferId>(b)),
             "rank {}: no instruction uses buffer '{}'", program.rank, program.buffers[b].name);
  }
  for (const Lane lane : {Lane::Private, Lane::Window, Lane::Host}) {
    check_overlap(program, lifetimes, lane);
  }
}

}  // namespace sw
