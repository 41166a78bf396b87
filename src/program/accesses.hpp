#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

/// Which bytes an instruction touches: what edges, the memory map and the verifier are made of.
namespace sw {

struct Access {
  BufferId buffer = -1;
  std::int64_t begin = 0;  ///< bytes from the buffer's start
  std::int64_t end = 0;
  bool reads = false;
  bool writes = false;
};

/// Every operand of the instruction, scratch included. Throws InternalError naming it when one does
/// not lie inside its buffer or is not aligned to its type.
[[nodiscard]] std::vector<Access> accesses(const Program& program, const Instruction& instruction);
/// What the host writes before the first instruction, and reads after the last.
[[nodiscard]] std::vector<Access> host_writes(const Program& program);
[[nodiscard]] std::vector<Access> host_reads(const Program& program);

/// What has been done to every byte, as one walks through a Program in list order.
class History {
 public:
  explicit History(const Program& program);

  /// The instructions that `id` must follow: the last writer of what it reads; the last writer, and
  /// the last reader of each stream, of what it writes. Ascending, without duplicates. Each of them
  /// follows in turn what came before it, so these are enough.
  [[nodiscard]] std::vector<InstructionId> conflicts(InstructionId id) const;
  /// The first access of `id` that reads a byte which nobody has written, or null.
  [[nodiscard]] const Access* unwritten(InstructionId id) const;
  /// Walks past `id`.
  void record(InstructionId id);

 private:
  /// Bytes of a buffer that have the same past.
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool written = false;
    InstructionId writer = -1;           ///< -1: the host or nobody
    std::vector<InstructionId> readers;  ///< since then, the last of each stream
  };

  void write(const Access& access, InstructionId writer);
  void read(const Access& access, InstructionId reader);
  /// Index of the piece that begins at `offset`, cutting one in two if need be.
  std::size_t cut(std::vector<Piece>& pieces, std::int64_t offset);

  const Program& program_;
  std::vector<std::vector<Access>> accesses_;
  std::vector<std::vector<Piece>> pieces_;  ///< per buffer, without holes
};

}  // namespace sw
