#include "checkpoint/reader.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

const FileRecord& record_of(const Manifest& manifest, const std::string& name,
                            const fs::path& checkpoint) {
  const auto found = std::ranges::find(manifest.files, name, &FileRecord::name);
  if (found == manifest.files.end()) {
    throw DataError(fmt::format("{}: does not list {}, though {} ranks wrote the checkpoint",
                                (checkpoint / kManifestName).string(), name, manifest.ranks));
  }
  return *found;
}

void check_size(const fs::path& path, std::size_t bytes, const FileRecord& record) {
  if (std::cmp_not_equal(bytes, record.bytes)) {
    throw DataError(
        fmt::format("{}: has {} bytes, but {} were written", path.string(), bytes, record.bytes));
  }
}

void check_digest(const fs::path& path, std::span<const std::byte> bytes,
                  const FileRecord& record) {
  if (to_text(hash128(bytes)) != record.digest) {
    throw DataError(
        fmt::format("{}: its {} bytes have checksum {}, but {} was written: the file "
                    "is damaged",
                    path.string(), bytes.size(), to_text(hash128(bytes)), record.digest));
  }
}

RankMark read_mark(const fs::path& path, const FileRecord& record) {
  const std::string text = read_whole_file(path, kMaxCheckpointJson);
  check_size(path, text.size(), record);
  check_digest(path, std::as_bytes(std::span(text)), record);
  return rank_mark_from(text, path.string());
}

std::string describe(const StateTensor& tensor) {
  return fmt::format("{} of '{}' ({} {})", tensor.state, tensor.tensor, to_text(tensor.dtype),
                     to_text(tensor.shape));
}

/// The first few faults of a kind, and the number of the others: a message is one sentence, also
/// about a model with hundreds of tensors.
void add_first(std::vector<std::string>& faults, const std::vector<std::string>& kind) {
  constexpr std::size_t kNamed = 3;
  const std::size_t named = std::min(kNamed, kind.size());
  faults.insert(faults.end(), kind.begin(), kind.begin() + static_cast<std::ptrdiff_t>(named));
  if (named < kind.size()) {
    faults.push_back(fmt::format("and so are {} more", kind.size() - named));
  }
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& checkpoint) : path_(checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  state_ = manifest.state;
  run_ = manifest.run;
  bytes_ = static_cast<std::int64_t>(MappedFile(checkpoint / kManifestName).bytes().size());
  for (std::int64_t rank = 0; rank < manifest.ranks; ++rank) {
    add_rank(rank, manifest);
  }
  check_cover();
}

void CheckpointReader::add_rank(std::int64_t rank, const Manifest& manifest) {
  const FileRecord& mark_record = record_of(manifest, rank_mark_name(rank), path_);
  const FileRecord& data_record = record_of(manifest, rank_data_name(rank), path_);
  bytes_ += mark_record.bytes + data_record.bytes;
  const RankMark mark = read_mark(path_ / mark_record.name, mark_record);
  const fs::path data_path = path_ / data_record.name;
  const SafetensorsReader& data = files_.emplace_back(data_path);
  check_size(data_path, data.bytes().size(), data_record);
  for (std::size_t k = 0; k < mark.pieces.size(); ++k) {
    add_piece(mark.pieces[k], k, data.tensors(), data_path);
  }
}

void CheckpointReader::add_piece(const PieceRecord& piece, std::size_t position,
                                 const TensorViews& views, const fs::path& data_path) {
  const std::string name = stored_name(piece.tensor, position);
  const auto view = views.find(name);
  if (view == views.end() || view->second.dtype != piece.tensor.dtype ||
      view->second.shape != Shape{piece.range.elements.size()}) {
    throw DataError(fmt::format(
        "{}: does not hold '{}' with {} elements of {}, which its mark names", data_path.string(),
        name, piece.range.elements.size(), to_text(piece.tensor.dtype)));
  }
  const auto [found, added] =
      tensors_.try_emplace({piece.tensor.tensor, piece.tensor.state},
                           Stored{piece.tensor.dtype, piece.tensor.shape, {}});
  Stored& stored = found->second;
  if (stored.dtype != piece.tensor.dtype || stored.shape != piece.tensor.shape) {
    throw DataError(fmt::format("{}: holds {}, but another rank wrote it as {} {}",
                                data_path.string(), describe(piece.tensor), to_text(stored.dtype),
                                to_text(stored.shape)));
  }
  stored.pieces.push_back({piece.range, view->second.bytes.data()});
}

void CheckpointReader::check_cover() const {
  for (const auto& [key, stored] : tensors_) {
    std::vector<PieceRange> ranges;
    for (const StoredPiece& piece : stored.pieces) {
      ranges.push_back(piece.range);
    }
    if (const auto fault = cover_fault(stored.shape, ranges)) {
      throw DataError(
          fmt::format("{}: {} of '{}': {}", path_.string(), key.second, key.first, *fault));
    }
  }
}

std::vector<StateTensor> CheckpointReader::tensors() const {
  std::vector<StateTensor> list;
  for (const auto& [key, stored] : tensors_) {
    list.push_back({key.first, key.second, stored.dtype, stored.shape});
  }
  return list;
}

void CheckpointReader::require(std::span<const StateTensor> expected) const {
  std::vector<std::string> missing;
  std::vector<std::string> unlike;
  std::vector<std::string> unknown;
  std::map<Key, const StateTensor*> wanted;
  for (const StateTensor& tensor : expected) {
    wanted.emplace(Key{tensor.tensor, tensor.state}, &tensor);
    const auto found = tensors_.find({tensor.tensor, tensor.state});
    if (found == tensors_.end()) {
      missing.push_back("missing: " + describe(tensor));
    } else if (found->second.dtype != tensor.dtype || found->second.shape != tensor.shape) {
      unlike.push_back(fmt::format("stored as {} {}: {}", to_text(found->second.dtype),
                                   to_text(found->second.shape), describe(tensor)));
    }
  }
  for (const StateTensor& tensor : tensors()) {
    if (!wanted.contains({tensor.tensor, tensor.state})) {
      unknown.push_back("not known to this run: " + describe(tensor));
    }
  }
  std::vector<std::string> faults;
  for (const std::vector<std::string>* kind : {&missing, &unlike, &unknown}) {
    add_first(faults, *kind);
  }
  if (!faults.empty()) {
    throw DataError(
        fmt::format("{}: does not fit this run: {}; resume with the model, precision "
                    "and optimizer that wrote it",
                    path_.string(), fmt::join(faults, "; ")));
  }
}

const CheckpointReader::Stored& CheckpointReader::stored(std::string_view tensor,
                                                         std::string_view state) const {
  const auto found = tensors_.find({std::string(tensor), std::string(state)});
  if (found == tensors_.end()) {
    throw DataError(fmt::format("{}: has no {} of a tensor '{}'", path_.string(), state, tensor));
  }
  return found->second;
}

void CheckpointReader::read(std::string_view tensor, std::string_view state,
                            const PieceRange& target, std::span<std::byte> out) const {
  const Stored& source = stored(tensor, state);
  if (const auto fault = misfit(target, source.shape)) {
    throw DataError(fmt::format("{}: {} of '{}' is stored with shape {}; of the part asked for, {}",
                                path_.string(), state, tensor, to_text(source.shape), *fault));
  }
  const std::int64_t size = size_of(source.dtype);
  SW_CHECK(std::cmp_equal(out.size(), target.elements.size() * size),
           "{} of '{}': {} elements of {} bytes do not fill {} bytes", state, tensor,
           target.elements.size(), size, out.size());
  std::int64_t copied = 0;
  for (const StoredPiece& piece : source.pieces) {
    copied += copy_common(source.shape, size, piece.range, piece.data, target, out.data());
  }
  SW_CHECK(copied == target.elements.size(), "{} of '{}': copied {} of {} elements", state, tensor,
           copied, target.elements.size());
}

Digest CheckpointReader::digest(std::string_view tensor, std::string_view state) const {
  const Stored& source = stored(tensor, state);
  const std::int64_t size = size_of(source.dtype);
  constexpr std::int64_t kBlockBytes = 1 << 20;
  const std::int64_t block = kBlockBytes / size;
  PieceRange part = whole_range(source.shape);
  const std::int64_t total = part.elements.end;
  std::vector<std::byte> bytes;
  Hasher hasher;
  for (std::int64_t begin = 0; begin < total; begin += block) {
    part.elements = {begin, std::min(begin + block, total)};
    bytes.resize(static_cast<std::size_t>(part.elements.size() * size));
    read(tensor, state, part, bytes);
    hasher.update(bytes);
  }
  return hasher.digest();
}

void verify_checkpoint(const fs::path& checkpoint) {
  const CheckpointReader reader(checkpoint);
  for (const FileRecord& record : read_manifest(checkpoint).files) {
    const fs::path path = checkpoint / record.name;
    const MappedFile file(path);
    check_size(path, file.bytes().size(), record);
    check_digest(path, file.bytes(), record);
  }
}

std::optional<fs::path> find_newest(const fs::path& folder,
                                    const std::function<void(const std::string&)>& note,
                                    const std::optional<std::string>& run) {
  const FolderContent content = list_folder(folder);
  for (const fs::path& leftover : content.leftovers) {
    note(fmt::format("{} passed over: its writer did not finish it", leftover.string()));
  }
  for (auto entry = content.checkpoints.rbegin(); entry != content.checkpoints.rend(); ++entry) {
    try {
      const std::string owner = read_manifest(entry->path).run;
      if (run && owner != *run) {
        note(fmt::format("{} passed over: belongs to run {}, not {}", entry->path.string(), owner,
                         *run));
        continue;
      }
      verify_checkpoint(entry->path);
      return entry->path;
    } catch (const DataError& error) {
      note(fmt::format("{} passed over: {}", entry->path.string(), error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace sw
