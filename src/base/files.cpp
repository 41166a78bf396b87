#include "base/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view what, int code) {
  throw DataError(fmt::format("{}: could not {}: {}", path.string(), what,
                              std::system_category().message(code)));
}

/// An open file descriptor.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, std::string_view what)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (number_ < 0) {
      fail(path, what, errno);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

class RealOutputFile final : public OutputFile {
 public:
  RealOutputFile(fs::path path, int flags, std::string_view what)
      : path_(std::move(path)), descriptor_(path_, flags, what) {}

  void write(std::span<const std::byte> bytes) override {
    const std::size_t asked = bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) {
        fail(path_, fmt::format("write {} bytes", asked), errno);
      }
      if (written > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(written));
      }
    }
  }

  void sync() override {
    if (::fsync(descriptor_.number()) != 0) {
      fail(path_, "sync the file", errno);
    }
  }

  void close() override {
    if (descriptor_.number() >= 0 && descriptor_.close() != 0) {
      fail(path_, "close the file", errno);
    }
  }

 private:
  fs::path path_;
  Descriptor descriptor_;
};

class RealFiles final : public Files {
 public:
  std::unique_ptr<OutputFile> create(const fs::path& path) override {
    return std::make_unique<RealOutputFile>(path, O_WRONLY | O_CREAT | O_TRUNC, "create the file");
  }

  std::unique_ptr<OutputFile> append(const fs::path& path) override {
    return std::make_unique<RealOutputFile>(path, O_WRONLY | O_CREAT | O_APPEND,
                                            "open the file for appending");
  }

  void create_directories(const fs::path& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
      fail(path, "create the directory", error.value());
    }
  }

  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      fail(from, fmt::format("rename to {}", to.string()), errno);
    }
  }

  void remove_all(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
      fail(path, "remove it", error.value());
    }
  }

  void sync_directory(const fs::path& path) override {
    const Descriptor directory(path, O_RDONLY | O_DIRECTORY, "open the directory");
    if (::fsync(directory.number()) != 0) {
      fail(path, "sync the directory", errno);
    }
  }
};

/// Size of an open regular file.
std::size_t size_of_file(const Descriptor& file, const fs::path& path) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) {
    fail(path, "read the size of the file", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(fmt::format("{}: is not a regular file", path.string()));
  }
  return static_cast<std::size_t>(status.st_size);
}

void unmap(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {
    ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
}

}  // namespace

Files& real_files() {
  static RealFiles files;
  return files;
}

void write_whole_file(Files& files, const fs::path& path, std::string_view content) {
  fs::path temporary = path;
  temporary.replace_filename(fmt::format(".{}.tmp", path.filename().string()));
  const std::unique_ptr<OutputFile> file = files.create(temporary);
  file->write(std::as_bytes(std::span(content)));
  file->sync();
  file->close();
  files.rename(temporary, path);
  files.sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string read_whole_file(const fs::path& path, std::int64_t limit) {
  const Descriptor file(path, O_RDONLY, "open the file");
  const std::size_t size = size_of_file(file, path);
  if (std::cmp_greater(size, limit)) {
    throw DataError(fmt::format("{}: has {} bytes, more than the limit of {} for such a file",
                                path.string(), size, limit));
  }
  std::string content(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.number(), content.data() + done, size - done);
    if (got < 0 && errno != EINTR) {
      fail(path, fmt::format("read {} bytes", size), errno);
    }
    if (got == 0) {
      throw DataError(
          fmt::format("{}: ended after {} of {} bytes while it was read; it was cut "
                      "by another program",
                      path.string(), done, size));
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return content;
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(path, O_RDONLY, "open the file");
  const std::size_t size = size_of_file(file, path);
  if (size == 0) {
    return;
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) {
    fail(path, fmt::format("map {} bytes", size), errno);
  }
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() { unmap(bytes_); }

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap(bytes_);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

}  // namespace sw
