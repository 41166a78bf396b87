#include "program/accesses.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace sw {
namespace {

bool is_root(const Program& program, const CollectiveWork& work) {
  const auto group = static_cast<std::size_t>(work.group);
  if (group >= program.groups.size()) return false;
  const std::vector<int>& members = program.groups[group].members;
  return work.peer >= 0 && work.peer < static_cast<int>(members.size()) &&
         members[static_cast<std::size_t>(work.peer)] == program.rank;
}

bool reads_inputs(const Program& program, const Instruction& instruction) {
  const auto* collective = std::get_if<CollectiveWork>(&instruction.work);
  return collective == nullptr || collective->kind != CollectiveKind::Broadcast ||
         is_root(program, *collective);
}

/// Whether output `index` is read as well as written.
bool reads_output(const Instruction& instruction, std::size_t index) {
  if (const auto* kernel = std::get_if<KernelWork>(&instruction.work)) {
    return index < kernel->accumulate.size() && kernel->accumulate[index];
  }
  if (const auto* optimizer = std::get_if<OptimizerWork>(&instruction.work)) {
    const auto outputs_per_range =
        static_cast<std::size_t>(1 + optimizer->states + (optimizer->rounded ? 1 : 0));
    return !optimizer->rounded || index % outputs_per_range != outputs_per_range - 1;
  }
  return false;
}

/// Collects accesses; `who` is for messages.
class Collector {
 public:
  Collector(const Program& program, std::string_view who) : program_(program), who_(who) {}

  void add(const Operand& operand, bool reads, bool writes) {
    if (operand.buffer < 0) return;
    SW_CHECK(static_cast<std::size_t>(operand.buffer) < program_.buffers.size(),
             "'{}' uses buffer {} of {}", who_, operand.buffer, program_.buffers.size());
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(operand.buffer)];
    const std::int64_t bytes = bytes_of(operand);
    SW_CHECK(operand.offset >= 0 && operand.offset <= buffer.bytes &&
                 bytes <= buffer.bytes - operand.offset,
             "'{}' uses {} bytes at {} of buffer '{}', which has {}", who_, bytes, operand.offset,
             buffer.name, buffer.bytes);
    SW_CHECK(operand.offset % size_of(operand.dtype) == 0,
             "'{}' uses {} at byte {} of buffer '{}': not aligned", who_, to_text(operand.dtype),
             operand.offset, buffer.name);
    if (bytes == 0) return;
    list.push_back({operand.buffer, operand.offset, operand.offset + bytes, reads, writes});
  }

  std::vector<Access> list;

 private:
  const Program& program_;
  std::string_view who_;
};

}  // namespace

std::int64_t bytes_of(const Operand& operand) {
  std::int64_t bytes = 0;
  SW_CHECK(!__builtin_mul_overflow(elements(operand.shape), size_of(operand.dtype), &bytes),
           "an operand of shape {} has more bytes than fit in 63 bits", to_text(operand.shape));
  return bytes;
}

std::vector<Access> accesses(const Program& program, const Instruction& instruction) {
  Collector collector(program, instruction.name);
  if (reads_inputs(program, instruction)) {
    for (const Operand& operand : instruction.inputs) collector.add(operand, true, false);
  }
  for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
    collector.add(instruction.outputs[i], reads_output(instruction, i), true);
  }
  collector.add(instruction.scratch, false, true);
  collector.add(instruction.rounds, true, false);
  return std::move(collector.list);
}

std::vector<Access> host_writes(const Program& program) {
  Collector collector(program, "host");
  for (const BatchSlot& batch : program.batches) {
    for (const Operand* operand :
         {&batch.tokens, &batch.labels, &batch.positions, &batch.documents}) {
      collector.add(*operand, false, true);
    }
  }
  for (const Operand* operand :
       {&program.host.valid_count, &program.host.settings, &program.host.dropout_key}) {
    collector.add(*operand, false, true);
  }
  return std::move(collector.list);
}

std::vector<Access> host_reads(const Program& program) {
  Collector collector(program, "host");
  for (const Operand* operand :
       {&program.host.loss, &program.host.balance_loss, &program.host.z_loss,
        &program.host.expert_load, &program.host.valid_count, &program.host.verdict}) {
    collector.add(*operand, true, false);
  }
  return std::move(collector.list);
}

History::History(const Program& program) : program_(program), pieces_(program.buffers.size()) {
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.bytes > 0) pieces_[b].push_back({0, buffer.bytes, buffer.persistent, -1, {}});
  }
  for (const Access& access : host_writes(program)) write(access, -1);
  accesses_.reserve(program.instructions.size());
  for (const Instruction& instruction : program.instructions) {
    accesses_.push_back(accesses(program, instruction));
  }
}

std::vector<InstructionId> History::conflicts(InstructionId id) const {
  std::vector<InstructionId> found;
  for (const Access& access : accesses_[static_cast<std::size_t>(id)]) {
    for (const Piece& piece : pieces_[static_cast<std::size_t>(access.buffer)]) {
      if (piece.end <= access.begin || piece.begin >= access.end) continue;
      if (piece.writer >= 0) found.push_back(piece.writer);
      if (access.writes) found.insert(found.end(), piece.readers.begin(), piece.readers.end());
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

const Access* History::unwritten(InstructionId id) const {
  for (const Access& access : accesses_[static_cast<std::size_t>(id)]) {
    if (!access.reads) continue;
    for (const Piece& piece : pieces_[static_cast<std::size_t>(access.buffer)]) {
      if (piece.end > access.begin && piece.begin < access.end && !piece.written) return &access;
    }
  }
  return nullptr;
}

void History::record(InstructionId id) {
  const std::vector<Access>& list = accesses_[static_cast<std::size_t>(id)];
  for (const Access& access : list) {
    if (!access.writes) read(access, id);
  }
  for (const Access& access : list) {
    if (access.writes) write(access, id);
  }
}

std::size_t History::cut(std::vector<Piece>& pieces, std::int64_t offset) {
  const auto at = std::find_if(pieces.begin(), pieces.end(),
                               [&](const Piece& piece) { return piece.end > offset; });
  const auto index = static_cast<std::size_t>(at - pieces.begin());
  if (at == pieces.end() || at->begin == offset) return index;
  Piece upper = *at;
  at->end = offset;
  upper.begin = offset;
  pieces.insert(at + 1, std::move(upper));
  return index + 1;
}

void History::write(const Access& access, InstructionId writer) {
  std::vector<Piece>& pieces = pieces_[static_cast<std::size_t>(access.buffer)];
  const std::size_t first = cut(pieces, access.begin);
  const std::size_t last = cut(pieces, access.end);
  pieces[first] = {access.begin, access.end, true, writer, {}};
  pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(first) + 1,
               pieces.begin() + static_cast<std::ptrdiff_t>(last));
}

void History::read(const Access& access, InstructionId reader) {
  std::vector<Piece>& pieces = pieces_[static_cast<std::size_t>(access.buffer)];
  const std::size_t first = cut(pieces, access.begin);
  const std::size_t last = cut(pieces, access.end);
  const auto stream_of = [&](InstructionId id) {
    return program_.instructions[static_cast<std::size_t>(id)].stream;
  };
  for (std::size_t i = first; i < last; ++i) {
    std::vector<InstructionId>& readers = pieces[i].readers;
    std::erase_if(readers, [&](InstructionId id) { return stream_of(id) == stream_of(reader); });
    readers.push_back(reader);
  }
}

}  // namespace sw
