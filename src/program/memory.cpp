#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "program/lifetime.hpp"
#include "program/program.hpp"

namespace sw {
namespace {

constexpr std::array kDeviceLanes = {Lane::Private, Lane::Window};
constexpr std::array kLanes = {Lane::Private, Lane::Window, Lane::Host};

std::int64_t Program::*size_of_lane(Lane lane) {
  switch (lane) {
    case Lane::Private:
      return &Program::private_bytes;
    case Lane::Window:
      return &Program::window_bytes;
    case Lane::Host:
      break;
  }
  return &Program::host_bytes;
}

std::vector<BufferId> buffers_of(const Program& program, Lane lane, bool persistent) {
  std::vector<BufferId> list;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.lane == lane && buffer.persistent == persistent) {
      list.push_back(static_cast<BufferId>(b));
    }
  }
  return list;
}

/// Places buffers of one lane one after the other, each where it fits best among those placed
/// before that live at the same time.
class Placement {
 public:
  Placement(const Program& program, const Lifetimes& lifetimes, std::int64_t base)
      : program_(program), lifetimes_(lifetimes), base_(base), end_(base) {}

  void place(BufferId buffer) {
    const std::int64_t bytes = program_.buffers[static_cast<std::size_t>(buffer)].bytes;
    const std::int64_t begin = best_gap(buffer, bytes);
    const Block block{begin, begin + bytes, buffer};
    end_ = std::max(end_, block.end);
    blocks_.insert(
        std::upper_bound(blocks_.begin(), blocks_.end(), block,
                         [](const Block& a, const Block& b) { return a.begin < b.begin; }),
        block);
  }

  struct Block {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    BufferId buffer = -1;
  };
  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] std::int64_t end() const { return end_; }

 private:
  /// The smallest gap that holds `bytes`, the lowest of equals; else above everything.
  [[nodiscard]] std::int64_t best_gap(BufferId buffer, std::int64_t bytes) const {
    std::int64_t top = base_;
    std::int64_t best = -1;
    std::int64_t best_size = std::numeric_limits<std::int64_t>::max();
    for (const Block& block : blocks_) {
      if (block.end <= top || !lifetimes_.overlap(block.buffer, buffer)) continue;
      const std::int64_t gap = block.begin - top;
      if (gap >= bytes && gap < best_size) {
        best = top;
        best_size = gap;
      }
      top = std::max(top, round_up(block.end, kAlignment));
    }
    return best >= 0 ? best : top;
  }

  const Program& program_;
  const Lifetimes& lifetimes_;
  std::int64_t base_;
  std::int64_t end_;
  std::vector<Block> blocks_;  ///< by begin
};

/// What the buffers of a lane hold at each moment of list order: [0] before the first instruction,
/// [i + 1] during instruction i, the last after all.
std::vector<std::int64_t> held(const Program& program, const Lifetimes& lifetimes,
                               const std::vector<BufferId>& buffers) {
  std::vector<std::int64_t> change(program.instructions.size() + 3, 0);
  for (const BufferId buffer : buffers) {
    if (!lifetimes.used(buffer)) continue;
    const std::int64_t bytes =
        round_up(program.buffers[static_cast<std::size_t>(buffer)].bytes, kAlignment);
    change[static_cast<std::size_t>(lifetimes.first(buffer) + 1)] += bytes;
    change[static_cast<std::size_t>(lifetimes.last(buffer) + 2)] -= bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

/// The orders worth trying: no one is best for all programs.
std::array<std::vector<BufferId>, 3> orders(const Program& program, const Lifetimes& lifetimes,
                                            const std::vector<BufferId>& buffers) {
  const auto bytes = [&](BufferId b) { return program.buffers[static_cast<std::size_t>(b)].bytes; };
  const auto duration = [&](BufferId b) { return lifetimes.last(b) - lifetimes.first(b) + 1; };
  std::array<std::vector<BufferId>, 3> all = {buffers, buffers, buffers};
  std::stable_sort(all[0].begin(), all[0].end(),
                   [&](BufferId a, BufferId b) { return bytes(a) > bytes(b); });
  std::stable_sort(all[1].begin(), all[1].end(), [&](BufferId a, BufferId b) {
    return duration(a) != duration(b) ? duration(a) > duration(b) : bytes(a) > bytes(b);
  });
  std::stable_sort(all[2].begin(), all[2].end(), [&](BufferId a, BufferId b) {
    return lifetimes.first(a) != lifetimes.first(b) ? lifetimes.first(a) < lifetimes.first(b)
                                                    : bytes(a) > bytes(b);
  });
  return all;
}

std::int64_t place_persistent(Program& program, Lane lane) {
  std::int64_t end = 0;
  for (const BufferId b : buffers_of(program, lane, true)) {
    Buffer& buffer = program.buffers[static_cast<std::size_t>(b)];
    buffer.offset = round_up(end, kAlignment);
    end = buffer.offset + buffer.bytes;
  }
  return end;
}

void place_transient(Program& program, const Lifetimes& lifetimes, Lane lane, std::int64_t base) {
  std::vector<BufferId> buffers = buffers_of(program, lane, false);
  for (const BufferId b : buffers) program.buffers[static_cast<std::size_t>(b)].offset = base;
  std::erase_if(buffers, [&](BufferId b) { return !lifetimes.used(b); });
  const std::vector<std::int64_t> moments = held(program, lifetimes, buffers);
  const std::int64_t least = *std::max_element(moments.begin(), moments.end());
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<BufferId>& order : orders(program, lifetimes, buffers)) {
    Placement placement(program, lifetimes, base);
    for (const BufferId b : order) placement.place(b);
    if (placement.end() >= best) continue;
    best = placement.end();
    for (const Placement::Block& block : placement.blocks()) {
      program.buffers[static_cast<std::size_t>(block.buffer)].offset = block.begin;
    }
    if (best <= base + least) break;
  }
}

std::int64_t& of_category(MemoryAccount& account, Category category) {
  switch (category) {
    case Category::Parameters:
      return account.parameters;
    case Category::Gradients:
      return account.gradients;
    case Category::Optimizer:
      return account.optimizer;
    case Category::Activations:
      return account.activations;
    case Category::Communication:
      return account.communication;
    case Category::Workspace:
      break;
  }
  return account.workspace;
}

}  // namespace

std::int64_t lane_bytes(const Program& program, Lane lane) { return program.*size_of_lane(lane); }

void map_memory(Program& program) {
  const Order order(program);
  const Lifetimes lifetimes(program, order);
  for (const Lane lane : kLanes) {
    const std::int64_t persistent = place_persistent(program, lane);
    place_transient(program, lifetimes, lane, round_up(persistent, kAlignment));
    std::int64_t end = 0;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.lane == lane && buffer.bytes > 0) {
        end = std::max(end, buffer.offset + buffer.bytes);
      }
    }
    program.*size_of_lane(lane) = end;
  }
}

MemoryAccount memory_account(const Program& program) {
  const Order order(program);
  const Lifetimes lifetimes(program, order);
  MemoryAccount account;
  account.peak = program.private_bytes + program.window_bytes;
  account.host = program.host_bytes;
  account.gaps = account.peak;
  const auto count = [&](BufferId b) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(b)];
    of_category(account, buffer.category) += buffer.bytes;
    account.gaps -= buffer.bytes;
  };
  for (const Lane lane : kDeviceLanes) {
    for (const BufferId b : buffers_of(program, lane, true)) count(b);
    const std::vector<BufferId> transient = buffers_of(program, lane, false);
    const std::vector<std::int64_t> moments = held(program, lifetimes, transient);
    const auto peak = static_cast<InstructionId>(std::max_element(moments.begin(), moments.end()) -
                                                 moments.begin() - 1);
    for (const BufferId b : transient) {
      if (lifetimes.first(b) <= peak && peak <= lifetimes.last(b)) count(b);
    }
  }
  return account;
}

}  // namespace sw
