#include "program/lifetime.hpp"

#include <algorithm>
#include <limits>

#include "program/accesses.hpp"

namespace sw {
namespace {

constexpr InstructionId kNever = std::numeric_limits<InstructionId>::max();
constexpr InstructionId kBeforeAll = -2;

}  // namespace

Lifetimes::Lifetimes(const Program& program, const Order& order)
    : streams_(program.streams.size()),
      first_(program.buffers.size(), kNever),
      last_(program.buffers.size(), -1),
      last_user_(program.buffers.size() * streams_, -1),
      ended_before_(program.buffers.size() * streams_, kNever) {
  const auto end = static_cast<InstructionId>(program.instructions.size());
  for (InstructionId id = 0; id < end; ++id) {
    const Instruction& instruction = program.instructions[static_cast<std::size_t>(id)];
    for (const Access& access : accesses(program, instruction)) {
      use(program, order, access.buffer, id);
    }
  }
  for (const Access& access : host_writes(program)) start_before_all(access.buffer);
  for (const Access& access : host_reads(program)) end_after_all(access.buffer, end);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (!program.buffers[b].persistent) continue;
    start_before_all(static_cast<BufferId>(b));
    end_after_all(static_cast<BufferId>(b), end);
  }
}

void Lifetimes::use(const Program& program, const Order& order, BufferId buffer, InstructionId id) {
  const auto b = static_cast<std::size_t>(buffer);
  const StreamId stream = program.instructions[static_cast<std::size_t>(id)].stream;
  first_[b] = std::min(first_[b], id);
  last_[b] = std::max(last_[b], id);
  InstructionId& last_user = last_user_[b * streams_ + static_cast<std::size_t>(stream)];
  // Later users of a stream start after its first one, so only that one counts.
  if (last_user < 0) {
    for (std::size_t s = 0; s < streams_; ++s) {
      InstructionId& ended = ended_before_[b * streams_ + s];
      ended = std::min(ended, order.last_before(id, static_cast<StreamId>(s)));
    }
  }
  last_user = id;
}

void Lifetimes::start_before_all(BufferId buffer) {
  const auto b = static_cast<std::size_t>(buffer);
  first_[b] = -1;
  std::fill_n(ended_before_.begin() + static_cast<std::ptrdiff_t>(b * streams_), streams_,
              kBeforeAll);
}

void Lifetimes::end_after_all(BufferId buffer, InstructionId end) {
  const auto b = static_cast<std::size_t>(buffer);
  first_[b] = std::min(first_[b], end);
  last_[b] = end;
  std::fill_n(last_user_.begin() + static_cast<std::ptrdiff_t>(b * streams_), streams_, kNever);
}

bool Lifetimes::precedes(BufferId a, BufferId b) const {
  const InstructionId* last_user = last_user_.data() + static_cast<std::size_t>(a) * streams_;
  const InstructionId* ended = ended_before_.data() + static_cast<std::size_t>(b) * streams_;
  for (std::size_t s = 0; s < streams_; ++s) {
    if (last_user[s] > ended[s]) return false;
  }
  return true;
}

}  // namespace sw
