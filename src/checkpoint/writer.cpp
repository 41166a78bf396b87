#include "checkpoint/writer.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const Piece& piece) {
  return piece.range.elements.size() * size_of(piece.dtype);
}

std::span<const std::byte> data_of(const Piece& piece) {
  return {piece.data, static_cast<std::size_t>(bytes_of(piece))};
}

PieceRecord record_of(const Piece& piece) {
  return {{piece.tensor, piece.state, piece.dtype, piece.whole}, piece.range};
}

FileRecord record_of(const std::string& name, std::string_view content) {
  return {name, static_cast<std::int64_t>(content.size()), to_text(hash128(content))};
}

void check_pieces(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    const auto fault = misfit(piece.range, piece.whole);
    SW_CHECK(!fault, "{} of '{}', shape {}: {}", piece.state, piece.tensor, to_text(piece.whole),
             fault.value_or(""));
  }
}

/// This rank's data file and then, once that is on the disk, its mark.
void write_rank(Files& files, const WriterOptions& options, const fs::path& temporary,
                std::int64_t step, const std::vector<Piece>& pieces) {
  RankMark mark{options.rank, step, {}, {}};
  std::vector<TensorDeclaration> declared;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    mark.pieces.push_back(record_of(pieces[k]));
    declared.push_back({stored_name(mark.pieces[k].tensor, k),
                        pieces[k].dtype,
                        {pieces[k].range.elements.size()}});
  }
  files.create_directories(temporary);
  const std::string name = rank_data_name(options.rank);
  SafetensorsWriter writer(files, temporary / name, declared);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (options.aborted()) {
      throw DataError(
          fmt::format("{}: given up, because the run was aborted", (temporary / name).string()));
    }
    writer.write(declared[k].name, data_of(pieces[k]));
  }
  const SafetensorsWriter::Finished finished = writer.finish();
  mark.data = {name, finished.bytes, to_text(finished.digest)};
  write_whole_file(files, temporary / rank_mark_name(options.rank), to_json_text(mark));
}

std::vector<std::int64_t> ranks_without_mark(const fs::path& temporary, int ranks) {
  std::vector<std::int64_t> missing;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::error_code unreadable;
    if (!fs::exists(temporary / rank_mark_name(rank), unreadable)) {
      missing.push_back(rank);
    }
  }
  return missing;
}

/// Grows as long as some rank still writes.
std::uintmax_t bytes_there(const fs::path& temporary) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(temporary, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code vanished;
    const std::uintmax_t size = entry->file_size(vanished);
    bytes += vanished ? 0 : size;
  }
  return bytes;
}

void wait_for_marks(const WriterOptions& options, const fs::path& temporary) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPoll = std::chrono::milliseconds(5);
  Clock::time_point last_progress = Clock::now();
  std::pair<std::size_t, std::uintmax_t> seen{};
  while (true) {
    const std::vector<std::int64_t> missing = ranks_without_mark(temporary, options.ranks);
    if (missing.empty()) {
      return;
    }
    if (options.aborted()) {
      throw DataError(
          fmt::format("{}: given up, because the run was aborted while ranks {} had "
                      "not finished writing",
                      temporary.string(), fmt::join(missing, ", ")));
    }
    const std::pair now_seen{missing.size(), bytes_there(temporary)};
    if (now_seen != seen) {
      seen = now_seen;
      last_progress = Clock::now();
    }
    const std::chrono::duration<double> idle = Clock::now() - last_progress;
    if (idle.count() > options.deadline_s) {
      throw DataError(
          fmt::format("{}: ranks {} have not finished writing, and nothing was written "
                      "for {} s",
                      temporary.string(), fmt::join(missing, ", "), options.deadline_s));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

using TensorKey = std::pair<std::string, std::string>;

void check_cover(const std::vector<RankMark>& marks, const fs::path& temporary) {
  std::map<TensorKey, std::pair<StateTensor, std::vector<PieceRange>>> tensors;
  for (const RankMark& mark : marks) {
    for (const PieceRecord& piece : mark.pieces) {
      auto& [tensor, ranges] = tensors
                                   .try_emplace({piece.tensor.tensor, piece.tensor.state},
                                                piece.tensor, std::vector<PieceRange>{})
                                   .first->second;
      SW_CHECK(tensor == piece.tensor, "{}: rank {} writes {} of '{}' with another shape or type",
               temporary.string(), mark.rank, tensor.state, tensor.tensor);
      ranges.push_back(piece.range);
    }
  }
  for (const auto& [key, entry] : tensors) {
    const auto fault = cover_fault(entry.first.shape, entry.second);
    SW_CHECK(!fault, "{}: {} of '{}', shape {}: {}", temporary.string(), key.second, key.first,
             to_text(entry.first.shape), fault.value_or(""));
  }
}

Manifest manifest_of(const WriterOptions& options, const fs::path& temporary,
                     const TrainingState& state) {
  Manifest manifest{options.run, options.ranks, state, {}};
  std::vector<RankMark> marks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const fs::path path = temporary / rank_mark_name(rank);
    const std::string text = read_whole_file(path, kMaxCheckpointJson);
    const RankMark& mark = marks.emplace_back(rank_mark_from(text, path.string()));
    SW_CHECK(mark.step == state.step, "{}: rank {} saved step {}, rank 0 step {}", path.string(),
             rank, mark.step, state.step);
    manifest.files.push_back(mark.data);
    manifest.files.push_back(record_of(path.filename().string(), text));
  }
  check_cover(marks, temporary);
  return manifest;
}

void remove_quietly(Files& files, const fs::path& path) {
  try {
    files.remove_all(path);
  } catch (const DataError& error) {
    warn(fmt::format("{}; the next start removes it", error.what()));
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(Files& files, WriterOptions options)
    : files_(files), options_(std::move(options)) {
  SW_CHECK(!options_.session.empty() && options_.session.find('/') == std::string::npos,
           "session '{}' is no part of a file name", options_.session);
  if (options_.rank == 0) {
    clear_leftovers(files_, options_.folder, options_.session);
  }
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    if (!options_.aborted()) {  // else the run has said why it ended
      warn(error.what());
    }
  }
}

std::int64_t CheckpointWriter::snapshot_bytes(std::span<const Piece> pieces) {
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += bytes_of(piece);
  }
  return bytes;
}

void CheckpointWriter::save(const TrainingState& state, std::span<const Piece> pieces,
                            std::optional<std::int64_t> best_step) {
  wait();
  check_pieces(pieces);
  SW_CHECK(std::isfinite(state.loss_scale), "a loss scale of {} cannot be saved", state.loss_scale);
  ++saves_;
  std::vector<Piece> copies(pieces.begin(), pieces.end());
  if (!options_.background) {
    write(state, copies, best_step);
    return;
  }
  snapshot_.resize(static_cast<std::size_t>(snapshot_bytes(pieces)));
  std::byte* at = snapshot_.data();
  for (Piece& piece : copies) {
    if (const auto data = data_of(piece); !data.empty()) {
      std::memcpy(at, data.data(), data.size());
    }
    piece.data = at;
    at += bytes_of(piece);
  }
  pending_ = std::async(std::launch::async, [this, state, copies = std::move(copies), best_step] {
    write(state, copies, best_step);
  });
}

void CheckpointWriter::wait() {
  if (pending_.valid()) {
    pending_.get();
  }
}

void CheckpointWriter::write(const TrainingState& state, const std::vector<Piece>& pieces,
                             std::optional<std::int64_t> best_step) const {
  const fs::path temporary =
      options_.folder /
      fmt::format(".{}.{}-{}.tmp", checkpoint_name(state.step), options_.session, saves_);
  try {
    write_rank(files_, options_, temporary, state.step, pieces);
    if (options_.rank != 0) {
      return;
    }
    wait_for_marks(options_, temporary);
    write_whole_file(files_, temporary / kManifestName,
                     to_json_text(manifest_of(options_, temporary, state)));
    place_checkpoint(files_, temporary, options_.folder, state.step);
  } catch (...) {
    if (options_.rank == 0) {
      remove_quietly(files_, temporary);
    }
    throw;
  }
  apply_retention(files_, options_.folder, {options_.run, options_.keep, state.step, best_step});
}

}  // namespace sw
