#include "tests/checkpoint/recording_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <map>

#include "base/error.hpp"

namespace sw::testing {
namespace {

namespace fs = std::filesystem;

class RecordingOutput final : public OutputFile {
 public:
  RecordingOutput(RecordingFiles& files, fs::path path, std::size_t number,
                  std::unique_ptr<OutputFile> real)
      : files_(files), path_(std::move(path)), number_(number), real_(std::move(real)) {}
  void write(std::span<const std::byte> bytes) override {
    files_.note({Call::Kind::Write, path_, {}, number_, {bytes.begin(), bytes.end()}});
    real_->write(bytes);
  }
  void sync() override { files_.note({Call::Kind::Sync, path_, {}, number_, {}}); }
  void close() override {
    files_.note({Call::Kind::Close, path_, {}, number_, {}});
    real_->close();
  }

 private:
  RecordingFiles& files_;
  fs::path path_;
  std::size_t number_;
  std::unique_ptr<OutputFile> real_;
};

/// A file that is being replayed; its descriptor follows it through renames.
struct Replayed {
  int descriptor = -1;
  off_t written = 0;
  off_t synced = 0;
};

fs::path moved(const fs::path& path, const fs::path& from, const fs::path& to) {
  return path.empty() ? path : to / fs::relative(path, from);
}

}  // namespace

std::size_t RecordingFiles::note(Call call) {
  if (before) {
    before(call);
  }
  const std::scoped_lock lock(mutex_);
  const std::size_t number = calls_.size();
  calls_.push_back(call);
  if (fails && fails(number, call)) {
    throw DataError(fmt::format("{}: could not write {} bytes: No space left on device",
                                call.path.string(), call.bytes.size()));
  }
  return number;
}

std::vector<Call> RecordingFiles::calls() const {
  const std::scoped_lock lock(mutex_);
  return calls_;
}

std::unique_ptr<OutputFile> RecordingFiles::create(const fs::path& path) {
  const std::size_t number = note({Call::Kind::Create, path, {}, 0, {}});
  return std::make_unique<RecordingOutput>(*this, path, number, real_files().create(path));
}

std::unique_ptr<OutputFile> RecordingFiles::append(const fs::path& path) {
  const std::size_t number = note({Call::Kind::Append, path, {}, 0, {}});
  return std::make_unique<RecordingOutput>(*this, path, number, real_files().append(path));
}

void RecordingFiles::create_directories(const fs::path& path) {
  note({Call::Kind::CreateDirectories, path, {}, 0, {}});
  real_files().create_directories(path);
}

void RecordingFiles::rename(const fs::path& from, const fs::path& to) {
  note({Call::Kind::Rename, from, to, 0, {}});
  real_files().rename(from, to);
}

void RecordingFiles::remove_all(const fs::path& path) {
  note({Call::Kind::RemoveAll, path, {}, 0, {}});
  real_files().remove_all(path);
}

void RecordingFiles::sync_directory(const fs::path& path) {
  note({Call::Kind::SyncDirectory, path, {}, 0, {}});
}

void replay(const std::vector<Call>& calls, std::size_t count, Survives survives,
            const fs::path& from, const fs::path& to) {
  std::map<std::size_t, Replayed> files;
  for (std::size_t number = 0; number < count; ++number) {
    const Call& call = calls[number];
    const fs::path path = moved(call.path, from, to);
    switch (call.kind) {
      case Call::Kind::Create:
        files[number].descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
        break;
      case Call::Kind::Append:
        throw InternalError("a checkpoint appends to no file");
      case Call::Kind::Write: {
        Replayed& file = files.at(call.file);
        const bool torn = survives == Survives::HalfOfLast && number + 1 == count;
        file.written += ::write(file.descriptor, call.bytes.data(),
                                torn ? call.bytes.size() / 2 : call.bytes.size());
        break;
      }
      case Call::Kind::Sync:
        files.at(call.file).synced = files.at(call.file).written;
        break;
      case Call::Kind::Close:
      case Call::Kind::SyncDirectory:
        break;
      case Call::Kind::CreateDirectories:
        fs::create_directories(path);
        break;
      case Call::Kind::Rename:
        fs::rename(path, moved(call.to, from, to));
        break;
      case Call::Kind::RemoveAll:
        fs::remove_all(path);
        break;
    }
  }
  for (const auto& [number, file] : files) {
    if (survives == Survives::Synced && ::ftruncate(file.descriptor, file.synced) != 0) {
      throw InternalError("a replayed file could not be cut");
    }
    ::close(file.descriptor);
  }
}

}  // namespace sw::testing
