#include "comm/shm/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace sw {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

/// An address at a multiple of the huge page size with `bytes` of address space behind it.
std::byte* aligned_address(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes + kHugePage);
  void* whole = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) {
    throw DeviceError(fmt::format("{} bytes of address space for shared memory: {}", bytes,
                                  std::strerror(errno)));
  }
  auto* begin = static_cast<std::byte*>(whole);
  const std::int64_t before =
      (kHugePage - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin)) % kHugePage) %
      kHugePage;
  if (before > 0) {
    munmap(begin, static_cast<std::size_t>(before));
  }
  munmap(begin + before + bytes, static_cast<std::size_t>(kHugePage - before));
  return begin + before;
}

}  // namespace

SharedMapping::SharedMapping(int descriptor, std::int64_t offset, std::int64_t bytes, bool populate)
    : size_(bytes) {
  if (bytes == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(bytes);
  std::byte* address = aligned_address(bytes);
  const int flags = MAP_SHARED | MAP_FIXED | (populate ? MAP_POPULATE : 0);
  if (mmap(address, size, PROT_READ | PROT_WRITE, flags, descriptor, offset) == MAP_FAILED) {
    const int error = errno;
    munmap(address, size);
    throw DeviceError(fmt::format("{} bytes of shared memory at offset {} cannot be mapped: {}",
                                  bytes, offset, std::strerror(error)));
  }
  data_ = address;
  // Advice: without huge pages the memory is slower and nothing else.
  (void)madvise(data_, size, MADV_HUGEPAGE);
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) {
    munmap(data_, static_cast<std::size_t>(size_));
  }
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

int create_memory_file(std::int64_t bytes) {
  const int descriptor = memfd_create("shardwright", 0);
  if (descriptor < 0) {
    throw DeviceError(fmt::format("a memory file cannot be made: {}", std::strerror(errno)));
  }
  if (ftruncate(descriptor, bytes) != 0) {
    const int error = errno;
    close(descriptor);
    throw DeviceError(
        fmt::format("a memory file of {} bytes cannot be made: {}", bytes, std::strerror(error)));
  }
  return descriptor;
}

int reserve_memory(int descriptor, std::int64_t offset, std::int64_t bytes) {
  while (bytes > 0 && fallocate(descriptor, 0, offset, bytes) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void release_memory(int descriptor, std::int64_t offset, std::int64_t bytes) {
  if (bytes > 0) {
    // If it fails the memory stays taken until the job ends, and a later reservation tells.
    (void)fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }
}

std::int64_t available_shared_memory() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string rest;
  std::int64_t kibibytes = 0;
  while (file >> key >> kibibytes && std::getline(file, rest)) {
    if (key == "MemAvailable:") {
      available = kibibytes * 1024;
    }
  }
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");  // "max" without a limit
  std::int64_t limit = 0;
  return limit_file >> limit ? std::min(available, limit) : available;
}

}  // namespace sw
