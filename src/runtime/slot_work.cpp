#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "program/collective.hpp"
#include "runtime/prepared_work.hpp"

/// Slots on their way to the experts they chose, and back.
namespace sw {
namespace {

/// How many slots each rank of a group has for each expert; the experts are shared out in order.
struct Table {
  const std::int32_t* counts;  ///< [ranks, experts]
  std::int64_t ranks;
  std::int64_t experts;

  Table(const std::int32_t* data, const Shape& shape)
      : counts(data), ranks(shape.at(0)), experts(shape.at(1)) {}
  [[nodiscard]] std::int64_t of_rank() const { return experts / ranks; }
  [[nodiscard]] std::int64_t at(std::int64_t rank, std::int64_t expert) const {
    return counts[rank * experts + expert];
  }
  /// Slots that `from` has for the experts of `to`.
  [[nodiscard]] std::int64_t between(std::int64_t from, std::int64_t to) const {
    std::int64_t sum = 0;
    for (std::int64_t e = to * of_rank(); e < (to + 1) * of_rank(); ++e) sum += at(from, e);
    return sum;
  }
  /// Of the slots that come to `to`, in the order of their ranks, those of `from`.
  [[nodiscard]] Range arrivals(std::int64_t from, std::int64_t to) const {
    std::int64_t begin = 0;
    for (std::int64_t rank = 0; rank < from; ++rank) begin += between(rank, to);
    return {begin, begin + between(from, to)};
  }
  /// Until all have come to the rank with most to come.
  [[nodiscard]] std::int64_t rounds(std::int64_t room) const {
    std::int64_t most = 1;
    for (std::int64_t to = 0; to < ranks; ++to) most = std::max(most, arrivals(ranks - 1, to).end);
    return (most + room - 1) / room;
  }
};

/// What `range` and `window` share; empty, at the window's nearer end, if nothing.
Range common(const Range& range, const Range& window) {
  const std::int64_t begin = std::clamp(range.begin, window.begin, window.end);
  return {begin, std::clamp(range.end, begin, window.end)};
}

/// A counting sort.
Run order(const std::int32_t* choice, std::int64_t slots, std::int32_t* order, std::int32_t* counts,
          std::int64_t experts) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(experts));
  return [=, next = std::move(next)](Team&) mutable {
    std::fill_n(counts, experts, 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      SW_CHECK(choice[slot] >= -1 && choice[slot] < experts, "slot {} chose expert {} of {}", slot,
               choice[slot], experts);
      if (choice[slot] >= 0) ++counts[choice[slot]];
    }
    std::int32_t begin = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      next[static_cast<std::size_t>(expert)] = begin;
      begin += counts[expert];
    }
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const auto number = static_cast<std::int32_t>(slot);
      if (choice[slot] < 0) {
        order[begin++] = -1 - number;
      } else {
        order[next[static_cast<std::size_t>(choice[slot])]++] = number;
      }
    }
  };
}

Run arrivals(const Table& table, std::int64_t rank, std::int32_t* choice, const Range& window,
             std::int32_t* rounds) {
  return [=](Team&) {
    std::fill_n(choice, window.size(), -1);
    std::int64_t row = 0;
    for (std::int64_t from = 0; from < table.ranks; ++from) {
      for (std::int64_t e = 0; e < table.of_rank(); ++e) {
        const std::int64_t count = table.at(from, rank * table.of_rank() + e);
        const Range here = common({row, row + count}, window);
        std::fill_n(choice + (here.begin - window.begin), here.size(),
                    static_cast<std::int32_t>(e));
        row += count;
      }
    }
    if (rounds != nullptr) *rounds = static_cast<std::int32_t>(table.rounds(window.size()));
  };
}

/// to[i] = from[order[i] / chosen], or the reverse; nothing, or zero, for a slot without an expert.
Run rows(const std::byte* from, const std::int32_t* order, std::byte* to, std::int64_t slots,
         std::int64_t bytes, const SlotWork& work) {
  const bool packs = work.kind == SlotKind::Pack;
  const std::int64_t chosen = work.chosen;
  constexpr std::int64_t kTileBytes = 1 << 16;
  const std::int64_t rows_of_tile = std::max<std::int64_t>(1, kTileBytes / bytes);
  const std::int64_t tiles = (slots + rows_of_tile - 1) / rows_of_tile;
  const auto tile_of_rows = [=](std::int64_t tile, int) {
    const std::int64_t end = std::min(slots, (tile + 1) * rows_of_tile);
    for (std::int64_t i = tile * rows_of_tile; i < end; ++i) {
      if (order[i] < 0) {
        if (!packs) std::memset(to + (-1 - order[i]) * bytes, 0, static_cast<std::size_t>(bytes));
        continue;
      }
      const std::int64_t slot = order[i] / chosen;
      std::memcpy(to + (packs ? i : slot) * bytes, from + (packs ? slot : i) * bytes,
                  static_cast<std::size_t>(bytes));
    }
  };
  return [=](Team& team) { team.run(tiles, std::cref(tile_of_rows)); };
}

/// What one run of a routed all_to_all needs, without allocation.
struct Exchange {
  Table table;
  Routing routing;
  std::int64_t rank;
  std::int64_t row;  ///< elements
  std::int64_t row_bytes;
  Range window;  ///< of what comes to each rank, the slots of this round
  PreparedCollective* collective;
  RoutedCount* count;
  std::vector<Range> apart,
      together;  ///< elements of packed slots, and of those with their experts

  void run() {
    std::int64_t packed = 0;
    std::int64_t sent = 0;
    const bool leaves = routing == Routing::ToExperts;
    for (std::int64_t peer = 0; peer < table.ranks; ++peer) {
      const Range all = table.arrivals(rank, peer);
      const Range there = common(all, window);
      const Range here = common(table.arrivals(peer, rank), window);
      const std::int64_t first = packed + there.begin - all.begin;
      apart[static_cast<std::size_t>(peer)] = elements(first, there.size());
      together[static_cast<std::size_t>(peer)] = elements(here.begin - window.begin, here.size());
      packed += all.size();
      if (peer != rank) sent += leaves ? there.size() : here.size();
    }
    collective->set_ranges(leaves ? apart : together, leaves ? together : apart);
    collective->run();
    ++count->calls;
    count->sent_bytes += sent * row_bytes;
  }

 private:
  [[nodiscard]] Range elements(std::int64_t first, std::int64_t rows) const {
    return rows == 0 ? Range{} : Range{first * row, (first + rows) * row};
  }
};

Range window_of(const Instruction& instruction, std::int64_t room) {
  return {instruction.round * room, (instruction.round + 1) * room};
}

}  // namespace

Run prepare_slot_work(const Program& program, const Instruction& instruction,
                      const RankMemory& memory) {
  const auto& work = std::get<SlotWork>(instruction.work);
  const Operand& input = instruction.inputs[0];
  const Operand& output = instruction.outputs[0];
  switch (work.kind) {
    case SlotKind::Order: {
      const Operand& counts = instruction.outputs[1];
      return order(pointer<std::int32_t>(program, memory, input), elements(input.shape),
                   pointer<std::int32_t>(program, memory, output),
                   pointer<std::int32_t>(program, memory, counts), counts.shape[1]);
    }
    case SlotKind::Arrivals:
      return arrivals(Table(pointer<std::int32_t>(program, memory, input), input.shape), work.rank,
                      pointer<std::int32_t>(program, memory, output),
                      window_of(instruction, elements(output.shape)),
                      instruction.round > 0
                          ? nullptr
                          : pointer<std::int32_t>(program, memory, instruction.outputs[1]));
    case SlotKind::Pack:
    case SlotKind::Unpack:
      break;
  }
  const std::int64_t slots = elements(instruction.inputs[1].shape);
  return rows(memory.address(program, input),
              pointer<std::int32_t>(program, memory, instruction.inputs[1]),
              memory.address(program, output), slots, bytes_of(output) / slots, work);
}

PreparedWork prepare_exchange(const Program& program, const Instruction& instruction,
                              const RankMemory& memory,
                              std::unique_ptr<PreparedCollective> collective) {
  const auto& work = std::get<CollectiveWork>(instruction.work);
  const Operand& table = instruction.inputs[1];
  const std::int64_t row = routed_rows(instruction).first;
  const Operand& room =
      work.routing == Routing::ToExperts ? instruction.outputs[0] : instruction.inputs[0];
  const auto ranks = static_cast<std::size_t>(table.shape[0]);
  auto count = std::make_unique<RoutedCount>();
  Exchange exchange{Table(pointer<std::int32_t>(program, memory, table), table.shape),
                    work.routing,
                    rank_in(program, group_of(program, work)),
                    row,
                    row * size_of(instruction.inputs[0].dtype),
                    window_of(instruction, room.shape[0]),
                    collective.get(),
                    count.get(),
                    std::vector<Range>(ranks),
                    std::vector<Range>(ranks)};
  return {.run = [exchange = std::move(exchange)](Team&) mutable { exchange.run(); },
          .collective = std::move(collective),
          .routed = std::move(count)};
}

}  // namespace sw
