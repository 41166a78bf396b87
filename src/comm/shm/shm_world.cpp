#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "comm/rank_world.hpp"
#include "comm/shm/shared_memory.hpp"

/// The memory file of a job: the control block, then the windows, one region per rank, as often as
/// windows are allocated. Regions of before become holes.
namespace sw {
namespace {

constexpr std::int64_t kRegionAlignment = 2 << 20;

std::int64_t windows_begin(int ranks) {
  return round_up(ControlBlock::address_space(ranks), kRegionAlignment);
}

void reserve_control(int descriptor, std::int64_t offset, std::int64_t bytes) {
  if (const int error = reserve_memory(descriptor, offset, bytes); error != 0) {
    throw DeviceError(fmt::format("{} bytes of shared memory for control cannot be reserved: {}",
                                  bytes, std::strerror(error)));
  }
}

/// A rank that is a process.
class ShmWorld final : public RankWorld {
 public:
  ShmWorld(std::shared_ptr<RankContext> context, int descriptor)
      : RankWorld(std::move(context)),
        descriptor_(descriptor),
        regions_(static_cast<std::size_t>(size())),
        end_(windows_begin(size())) {
    std::vector<int> everyone(static_cast<std::size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    everyone_ = make_communicator("world", std::move(everyone));
    meet("join");
  }

  std::span<std::byte> allocate_window(std::int64_t bytes) override;

 private:
  void meet(const char* why) {
    (void)everyone_->run({.kind = CollectiveKind::Barrier, .name = why});
  }
  void free_regions();
  [[nodiscard]] std::vector<std::int64_t> sizes();
  /// Where the region of a rank begins in the file.
  [[nodiscard]] std::int64_t offset_of(int owner, const std::vector<std::int64_t>& sizes) const;
  void throw_if_refused(const std::vector<std::int64_t>& sizes);

  int descriptor_;
  std::unique_ptr<Communicator> everyone_;
  std::vector<SharedMapping> regions_;  ///< by rank
  std::int64_t own_offset_ = 0;
  std::int64_t end_;  ///< of the file; every rank computes the same
};

std::span<std::byte> ShmWorld::allocate_window(std::int64_t bytes) {
  SW_CHECK(bytes >= 0, "a window of {} bytes", bytes);
  free_regions();
  context().control->status(rank()).window_bytes.store(bytes);
  meet("window sizes");
  const std::vector<std::int64_t> asked = sizes();
  RankStatus& status = context().control->status(rank());
  // One rank looks at what is available, before any rank takes some.
  status.window_error.store(rank() == 0 &&
                                    std::accumulate(asked.begin(), asked.end(), std::int64_t{0}) >
                                        available_shared_memory()
                                ? ENOMEM
                                : 0);
  meet("window check");
  throw_if_refused(asked);
  // Every rank reserves its own region, so that its memory lies near it.
  own_offset_ = offset_of(rank(), asked);
  status.window_error.store(
      reserve_memory(descriptor_, own_offset_, asked[static_cast<std::size_t>(rank())]));
  meet("window memory");
  try {
    throw_if_refused(asked);
  } catch (const DeviceError&) {
    release_memory(descriptor_, own_offset_, bytes);
    throw;
  }

  for (int owner = 0; owner < size(); ++owner) {
    const auto index = static_cast<std::size_t>(owner);
    regions_[index] =
        SharedMapping(descriptor_, offset_of(owner, asked), asked[index], owner == rank());
    context().windows[index] = {reinterpret_cast<std::uintptr_t>(regions_[index].data()),
                                asked[index]};
  }
  end_ = offset_of(size(), asked);
  meet("window");
  return {regions_[static_cast<std::size_t>(rank())].data(), static_cast<std::size_t>(bytes)};
}

void ShmWorld::free_regions() {
  const std::int64_t own = regions_[static_cast<std::size_t>(rank())].size();
  for (SharedMapping& region : regions_) {
    region = SharedMapping();
  }
  release_memory(descriptor_, own_offset_, own);
}

std::vector<std::int64_t> ShmWorld::sizes() {
  std::vector<std::int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(size()));
  for (int owner = 0; owner < size(); ++owner) {
    sizes.push_back(context().control->status(owner).window_bytes.load());
  }
  return sizes;
}

std::int64_t ShmWorld::offset_of(int owner, const std::vector<std::int64_t>& sizes) const {
  std::int64_t offset = end_;
  for (int before = 0; before < owner; ++before) {
    offset += round_up(sizes[static_cast<std::size_t>(before)], kRegionAlignment);
  }
  return offset;
}

void ShmWorld::throw_if_refused(const std::vector<std::int64_t>& sizes) {
  for (int owner = 0; owner < size(); ++owner) {
    const int error = context().control->status(owner).window_error.load();
    if (error != 0) {
      throw DeviceError(fmt::format(
          "rank {}: no memory for a window of {} bytes ({} bytes for all {} ranks, {} bytes are "
          "available): {}; use a smaller micro-batch or fewer ranks on this host",
          owner, sizes[static_cast<std::size_t>(owner)],
          std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), size(),
          available_shared_memory(), std::strerror(error)));
    }
  }
}

/// The control block of the job behind a descriptor.
std::shared_ptr<SharedMapping> map_control(int descriptor) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0 || file.st_size < ControlBlock::address_space(1)) {
    throw CommError(
        fmt::format("descriptor {} is not the shared memory of a job; start ranks with "
                    "shardwright train",
                    descriptor));
  }
  const auto head = SharedMapping(descriptor, 0, ControlBlock::fixed_bytes(1), false);
  const int ranks = ControlBlock::open(head.data())->ranks();
  return std::make_shared<SharedMapping>(descriptor, 0, ControlBlock::address_space(ranks), false);
}

}  // namespace

struct ShmJob::State {
  int descriptor = -1;
  SharedMapping control;

  ControlBlock* block() const { return ControlBlock::open(control.data()); }
  ~State() {
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
};

ShmJob::ShmJob(int ranks, const WorldOptions& options) : state_(std::make_unique<State>()) {
  SW_CHECK(ranks >= 1, "a job of {} ranks", ranks);
  // Windows lie beyond the end that this gives the file; fallocate moves it.
  const std::int64_t bytes = ControlBlock::address_space(ranks);
  state_->descriptor = create_memory_file(bytes);
  reserve_control(state_->descriptor, 0, ControlBlock::fixed_bytes(ranks));
  state_->control = SharedMapping(state_->descriptor, 0, bytes, false);
  ControlBlock::create(state_->control.data(), ranks, options);
}

ShmJob::~ShmJob() = default;

int ShmJob::descriptor() const { return state_->descriptor; }

void ShmJob::abort(std::string_view message) { state_->block()->abort(message); }

std::string ShmJob::aborted() const { return state_->block()->aborted(); }

std::string ShmJob::progress(int rank) const { return state_->block()->doing(rank); }

std::unique_ptr<World> join_shm_world(int descriptor, int rank) {
  const auto memory = map_control(descriptor);
  ControlBlock* control = ControlBlock::open(memory->data());
  if (rank < 0 || rank >= control->ranks()) {
    throw CommError(fmt::format("rank {} of a job of {} ranks", rank, control->ranks()));
  }
  auto context = std::make_shared<RankContext>();
  context->control = control;
  context->rank = rank;
  context->windows.resize(static_cast<std::size_t>(control->ranks()));
  context->reserve = [descriptor](std::int64_t offset, std::int64_t bytes) {
    reserve_control(descriptor, offset, bytes);
  };
  context->memory = memory;
  return std::make_unique<ShmWorld>(std::move(context), descriptor);
}

}  // namespace sw
