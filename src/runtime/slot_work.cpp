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
};

/// A counting sort.
Run order(const std::int32_t* choice, std::int64_t slots, std::int32_t* order, std::int32_t* counts,
          std::int64_t experts) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(experts));
  return [=, next = std::move(next)](Team&) mutable {
    std::fill_n(counts, experts, 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      SW_CHECK(choice[slot] >= 0 && choice[slot] < experts, "slot {} chose expert {} of {}", slot,
               choice[slot], experts);
      ++counts[choice[slot]];
    }
    std::int32_t begin = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      next[static_cast<std::size_t>(expert)] = begin;
      begin += counts[expert];
    }
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      order[next[static_cast<std::size_t>(choice[slot])]++] = static_cast<std::int32_t>(slot);
    }
  };
}

Run arrivals(const Table& table, std::int64_t rank, std::int32_t* choice, std::int64_t room) {
  return [=](Team&) {
    std::int64_t row = 0;
    for (std::int64_t from = 0; from < table.ranks; ++from) {
      for (std::int64_t e = 0; e < table.of_rank(); ++e) {
        const std::int64_t count = table.at(from, rank * table.of_rank() + e);
        SW_CHECK(count <= room - row, "more than {} slots come to one rank", room);
        std::fill_n(choice + row, count, static_cast<std::int32_t>(e));
        row += count;
      }
    }
    std::fill(choice + row, choice + room, -1);
  };
}

/// to[i] = from[order[i]], or the reverse.
Run rows(const std::byte* from, const std::int32_t* order, std::byte* to, std::int64_t slots,
         std::int64_t bytes, bool packs) {
  constexpr std::int64_t kTileBytes = 1 << 16;
  const std::int64_t rows_of_tile = std::max<std::int64_t>(1, kTileBytes / bytes);
  const std::int64_t tiles = (slots + rows_of_tile - 1) / rows_of_tile;
  const auto tile_of_rows = [=](std::int64_t tile, int) {
    const std::int64_t end = std::min(slots, (tile + 1) * rows_of_tile);
    for (std::int64_t i = tile * rows_of_tile; i < end; ++i) {
      const std::int64_t slot = order[i];
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
  PreparedCollective* collective;
  RoutedCount* count;
  std::vector<Range> apart,
      together;  ///< elements of packed slots, and of those with their experts

  void run() {
    std::int64_t packed = 0;
    std::int64_t arrived = 0;
    std::int64_t sent = 0;
    const bool leaves = routing == Routing::ToExperts;
    for (std::int64_t peer = 0; peer < table.ranks; ++peer) {
      const std::int64_t there = table.between(rank, peer);
      const std::int64_t here = table.between(peer, rank);
      apart[static_cast<std::size_t>(peer)] = {packed * row, (packed + there) * row};
      together[static_cast<std::size_t>(peer)] = {arrived * row, (arrived + here) * row};
      packed += there;
      arrived += here;
      if (peer != rank) sent += leaves ? there : here;
    }
    collective->set_ranges(leaves ? apart : together, leaves ? together : apart);
    collective->run();
    ++count->calls;
    count->sent_bytes += sent * row_bytes;
  }
};

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
                      pointer<std::int32_t>(program, memory, output), elements(output.shape));
    case SlotKind::Pack:
    case SlotKind::Unpack:
      break;
  }
  const std::int64_t slots = elements(instruction.inputs[1].shape);
  return rows(
      memory.address(program, input), pointer<std::int32_t>(program, memory, instruction.inputs[1]),
      memory.address(program, output), slots, bytes_of(input) / slots, work.kind == SlotKind::Pack);
}

PreparedWork prepare_exchange(const Program& program, const Instruction& instruction,
                              const RankMemory& memory,
                              std::unique_ptr<PreparedCollective> collective) {
  const auto& work = std::get<CollectiveWork>(instruction.work);
  const Operand& table = instruction.inputs[1];
  const std::int64_t row = routed_rows(instruction).first;
  const auto ranks = static_cast<std::size_t>(table.shape[0]);
  auto count = std::make_unique<RoutedCount>();
  Exchange exchange{Table(pointer<std::int32_t>(program, memory, table), table.shape),
                    work.routing,
                    rank_in(program, group_of(program, work)),
                    row,
                    row * size_of(instruction.inputs[0].dtype),
                    collective.get(),
                    count.get(),
                    std::vector<Range>(ranks),
                    std::vector<Range>(ranks)};
  return {.run = [exchange = std::move(exchange)](Team&) mutable { exchange.run(); },
          .collective = std::move(collective),
          .routed = std::move(count)};
}

}  // namespace sw
