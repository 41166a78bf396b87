#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/rank_world.hpp"
#include "device/arena.hpp"

namespace sw {
namespace {

/// Address space for a control block; pages become memory when they are touched.
std::shared_ptr<std::byte> map_control_block(std::int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw DeviceError(fmt::format("{} bytes of address space for the ranks' control block: {}",
                                  bytes, std::strerror(errno)));
  }
  return {static_cast<std::byte*>(memory),
          [bytes](std::byte* data) { munmap(data, static_cast<std::size_t>(bytes)); }};
}

/// A rank that is a thread.
class LocalWorld final : public RankWorld {
 public:
  using RankWorld::RankWorld;

  std::span<std::byte> allocate_window(std::int64_t bytes) override {
    window_ = Arena();
    window_ = Arena(bytes);
    return {window_.data(), static_cast<std::size_t>(window_.size())};
  }

 private:
  Arena window_;
};

}  // namespace

std::vector<std::unique_ptr<World>> make_local_worlds(int ranks, const WorldOptions& options) {
  SW_CHECK(ranks >= 1, "a job of {} ranks", ranks);
  const auto memory = map_control_block(ControlBlock::address_space(ranks));
  ControlBlock* control = ControlBlock::create(memory.get(), ranks, options);
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < ranks; ++rank) {
    auto context = std::make_shared<RankContext>();
    context->control = control;
    context->rank = rank;
    context->windows.resize(static_cast<std::size_t>(ranks));
    context->one_address_space = true;
    context->memory = memory;
    worlds.push_back(std::make_unique<LocalWorld>(std::move(context)));
  }
  return worlds;
}

}  // namespace sw
