#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// The one seam for files that must survive a crash: checkpoints, model folders, metrics. Tests put
/// a recorder or a saboteur in its place.
namespace sw {

/// An open file being written. Closing without `sync` promises nothing.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;   ///< data and size are on the disk when this returns
  virtual void close() = 0;  ///< reports what the destructor must swallow
};

/// Every call throws DataError with the path, what was tried, the bytes if any, and the system's
/// reason ("…/rank-00000.safetensors: could not write 4096 bytes: No space left on device").
class Files {
 public:
  virtual ~Files() = default;
  /// Creates (or truncates) a file.
  virtual std::unique_ptr<OutputFile> create(const std::filesystem::path& path) = 0;
  /// Opens for appending; creates if absent.
  virtual std::unique_ptr<OutputFile> append(const std::filesystem::path& path) = 0;
  virtual void create_directories(const std::filesystem::path& path) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_all(const std::filesystem::path& path) = 0;
  /// Makes the names inside a directory durable.
  virtual void sync_directory(const std::filesystem::path& path) = 0;
};

/// The real file system.
[[nodiscard]] Files& real_files();

/// Writes a whole small file so that it is either the old or the new one: temporary name, sync,
/// rename, sync of the directory.
void write_whole_file(Files& files, const std::filesystem::path& path, std::string_view content);
/// Whether something is at `path`; false too where the system does not say.
[[nodiscard]] bool is_there(const std::filesystem::path& path);
/// Reads a whole file; DataError if missing or longer than `limit` bytes.
[[nodiscard]] std::string read_whole_file(const std::filesystem::path& path, std::int64_t limit);

/// A read-only memory-mapped file; an empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace sw
