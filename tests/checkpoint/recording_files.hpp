#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.hpp"

namespace sw::testing {

/// One call of Files or OutputFile.
struct Call {
  enum class Kind : std::uint8_t {
    Create,
    Append,
    Write,
    Sync,
    Close,
    CreateDirectories,
    Rename,
    RemoveAll,
    SyncDirectory,
  };
  Kind kind = Kind::Create;
  std::filesystem::path path;    ///< of the file, also for Write, Sync and Close
  std::filesystem::path to;      ///< Rename
  std::size_t file = 0;          ///< number of the Create or Append that opened the file
  std::vector<std::byte> bytes;  ///< Write
};

/// Passes everything on to the real files, but waits for no disk: no machine crashes in a test.
/// Writes down the calls, from any number of threads, and
/// can fail at one of them.
class RecordingFiles final : public Files {
 public:
  std::unique_ptr<OutputFile> create(const std::filesystem::path& path) override;
  std::unique_ptr<OutputFile> append(const std::filesystem::path& path) override;
  void create_directories(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_all(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;

  /// Asked before each call, with its number from 0: true makes it fail as a full disk does.
  std::function<bool(std::size_t number, const Call& call)> fails;
  /// Called before each call.
  std::function<void(const Call& call)> before;

  [[nodiscard]] std::vector<Call> calls() const;

  /// Notes the call; returns its number, or throws.
  std::size_t note(Call call);

 private:
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
};

/// What a crash leaves of the bytes that were written.
enum class Survives : std::uint8_t {
  All,         ///< the last write whole
  HalfOfLast,  ///< half of the last call, if that is a write
  Synced,      ///< nothing of any file that was not synced
};

/// Does the first `count` calls again, with paths below `from` moved to `to`, as far as a crash
/// after them would leave them.
void replay(const std::vector<Call>& calls, std::size_t count, Survives survives,
            const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace sw::testing
