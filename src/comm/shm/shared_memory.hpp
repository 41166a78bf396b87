#pragma once

#include <cstddef>
#include <cstdint>

namespace sw {

/// A mapping of part of a memory file, shared with whoever maps it too.
class SharedMapping {
 public:
  SharedMapping() = default;
  /// Maps [offset, offset + bytes) of `descriptor`, huge pages where the kernel gives them. With
  /// `populate` the page tables are filled at once. Throws DeviceError.
  SharedMapping(int descriptor, std::int64_t offset, std::int64_t bytes, bool populate);
  ~SharedMapping();
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// A file of `bytes` bytes in memory, all holes, in no file system: it goes with the last process
/// that has it open or mapped. Children inherit the descriptor. Throws DeviceError.
[[nodiscard]] int create_memory_file(std::int64_t bytes);

/// Makes holes in [offset, offset + bytes) real memory, so that touching them cannot fail later.
/// Returns 0 or an errno.
[[nodiscard]] int reserve_memory(int descriptor, std::int64_t offset, std::int64_t bytes);
/// Gives the memory back.
void release_memory(int descriptor, std::int64_t offset, std::int64_t bytes);

/// What can still be reserved before the kernel kills somebody.
[[nodiscard]] std::int64_t available_shared_memory();

}  // namespace sw
