#include <algorithm>

#include "base/error.hpp"
#include "runtime/executor.hpp"

namespace sw {
namespace {

constexpr std::int64_t kGuardBytes = 4096;

}  // namespace

RankMemory::RankMemory(World& world, std::span<const Program* const> programs,
                       std::int64_t control_bytes) {
  std::int64_t private_bytes = 0;
  std::int64_t window_bytes = 0;
  std::int64_t host_bytes = 0;
  for (const Program* program : programs) {
    private_bytes = std::max(private_bytes, program->private_bytes);
    window_bytes = std::max(window_bytes, round_up(program->window_bytes, kAlignment));
    host_bytes = std::max(host_bytes, program->host_bytes);
  }
  private_ = Arena(private_bytes + kGuardBytes);
  host_ = Arena(host_bytes + kGuardBytes);
  const std::span<std::byte> memory =
      world.allocate_window(window_bytes + kGuardBytes + round_up(control_bytes, kAlignment));
  window_ = memory.first(static_cast<std::size_t>(window_bytes + kGuardBytes));
  control_ = memory.subspan(window_.size()).first(static_cast<std::size_t>(control_bytes));
  for (const Lane each : {Lane::Private, Lane::Window, Lane::Host}) {
    fill_with_pattern(lane(each).data(), static_cast<std::int64_t>(lane(each).size()));
  }
}

std::span<std::byte> RankMemory::lane(Lane lane) const {
  switch (lane) {
    case Lane::Private:
      return {private_.data(), static_cast<std::size_t>(private_.size())};
    case Lane::Window:
      return window_;
    case Lane::Host:
      break;
  }
  return {host_.data(), static_cast<std::size_t>(host_.size())};
}

std::byte* RankMemory::address(const Program& program, const Operand& operand) const {
  if (operand.buffer < 0) return nullptr;
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
  const std::int64_t offset = buffer.offset + operand.offset;
  const std::int64_t end = offset + bytes_of(operand);
  const std::span<std::byte> memory = lane(buffer.lane);
  const std::int64_t size = static_cast<std::int64_t>(memory.size()) - kGuardBytes;
  SW_CHECK(offset >= 0 && end <= size, "buffer '{}' ends at {} of a lane of {} bytes", buffer.name,
           end, size);
  return memory.data() + offset;
}

std::int64_t RankMemory::measured_peak() const {
  return highest_touched(private_.data(), private_.size()) +
         highest_touched(window_.data(), static_cast<std::int64_t>(window_.size()));
}

std::int64_t RankMemory::measured_host() const {
  return highest_touched(host_.data(), host_.size());
}

}  // namespace sw
