#include "data/token_set.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "token sets are little-endian");

constexpr std::array<char, 8> kMagic = {'S', 'W', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kBosFlag = 1;
constexpr std::uint32_t kEosFlag = 2;

/// The first bytes of the file, as they lie there.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bytes_per_token = 2;
  std::uint64_t vocabulary = 0;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint32_t flags = 0;
  std::int32_t padding = -1;
  std::array<char, 40> tokenizer = {};  ///< ends with a zero byte
  std::uint64_t documents_checksum = 0;
  std::uint64_t tokens_checksum = 0;
  std::uint64_t header_checksum = 0;  ///< of all bytes before it
};
static_assert(sizeof(Header) == 112 && std::is_trivially_copyable_v<Header>);

std::uint64_t checksum_of(const Header& header) {
  return hash64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_checksum)));
}

std::uint64_t combine(std::uint64_t documents, std::uint64_t tokens) {
  const std::array both = {documents, tokens};
  return hash64(std::as_bytes(std::span(both)));
}

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("{}: {}; make it again with `shardwright tokenize`", path.string(), reason));
}

MappedFile map(const fs::path& path) {
  try {
    return MappedFile(path);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

/// For a file that could not be written: what is wrong with the disk has been said already.
void remove_quietly(Files& files, const fs::path& path) {
  try {
    files.remove_all(path);
  } catch (const DataError&) {
  }
}

/// Header of a file whose size is exactly what the header says.
Header read_header(const fs::path& path, std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) {
    refuse(path, fmt::format("a token set starts with {} bytes of header and this file has {}",
                             sizeof header, bytes.size()));
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) {
    refuse(path, "is no token set");
  }
  if (header.version != kVersion) {
    refuse(path, fmt::format("is a token set of version {} and this program reads version {}",
                             header.version, kVersion));
  }
  const std::uint64_t checksum = checksum_of(header);
  if (header.header_checksum != checksum) {
    refuse(path, fmt::format("the header is damaged (checksum {:016x}, expected {:016x})", checksum,
                             header.header_checksum));
  }
  // From here on the header is as some program wrote it; it may still be nonsense.
  if ((header.bytes_per_token != 2 && header.bytes_per_token != 4) ||
      header.tokenizer.back() != '\0' || header.vocabulary > INT32_MAX) {
    refuse(path, "the header holds values that no token set has");
  }
  const std::uint64_t limit = bytes.size();
  if (header.tokens > limit || header.documents > limit) {
    refuse(path, fmt::format("the header counts {} tokens and {} documents, but the file has {} "
                             "bytes",
                             header.tokens, header.documents, bytes.size()));
  }
  const std::uint64_t expected = sizeof header + header.documents * sizeof(DocumentRecord) +
                                 header.tokens * header.bytes_per_token;
  if (expected != bytes.size()) {
    refuse(path, fmt::format("has {} bytes where its header promises {}", bytes.size(), expected));
  }
  return header;
}

void check_documents(const fs::path& path, const Header& header,
                     std::span<const DocumentRecord> documents) {
  const std::uint64_t checksum = hash64(std::as_bytes(documents));
  if (checksum != header.documents_checksum) {
    refuse(path, fmt::format("the document table is damaged (checksum {:016x}, expected {:016x})",
                             checksum, header.documents_checksum));
  }
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const DocumentRecord& document = documents[i];
    if (document.end <= begin || document.first_target < begin ||
        document.first_target > document.end) {
      refuse(path, fmt::format("document {} runs from token {} to {} with its first label at {}", i,
                               begin, document.end, document.first_target));
    }
    begin = document.end;
  }
  if (begin != header.tokens) {
    refuse(path, fmt::format("the documents end at token {} and there are {} tokens", begin,
                             header.tokens));
  }
}

}  // namespace

bool is_token_set(const fs::path& path) {
  const MappedFile file = map(path);
  return file.bytes().size() >= kMagic.size() &&
         std::memcmp(file.bytes().data(), kMagic.data(), kMagic.size()) == 0;
}

TokenSet::TokenSet(TokenSetRecipe recipe)
    : recipe_(std::move(recipe)),
      is_wide_(recipe_.vocabulary > std::numeric_limits<std::uint16_t>::max() + 1) {
  SW_CHECK(recipe_.tokenizer.size() < Header{}.tokenizer.size(), "tokenizer name '{}' is too long",
           recipe_.tokenizer);
}

TokenSet TokenSet::open(const fs::path& path, Verify verify) {
  MappedFile file = map(path);
  const Header header = read_header(path, file.bytes());
  TokenSet set({.tokenizer = header.tokenizer.data(),
                .vocabulary = static_cast<std::int64_t>(header.vocabulary),
                .padding = header.padding,
                .add_bos = (header.flags & kBosFlag) != 0,
                .add_eos = (header.flags & kEosFlag) != 0});
  set.is_wide_ = header.bytes_per_token == 4;
  set.tokens_at_ = sizeof header + header.documents * sizeof(DocumentRecord);
  set.documents_in_file_ = header.documents;
  set.checksum_in_file_ = combine(header.documents_checksum, header.tokens_checksum);
  set.file_ = std::move(file);
  check_documents(path, header, set.documents());
  if (verify == Verify::Everything) {
    const std::uint64_t checksum = hash64(set.token_bytes());
    if (checksum != header.tokens_checksum) {
      refuse(path, fmt::format("the tokens are damaged (checksum {:016x}, expected {:016x})",
                               checksum, header.tokens_checksum));
    }
    if (const auto at = set.first_beyond(set.recipe_.vocabulary)) {
      refuse(path, fmt::format("the token at position {} is beyond the set's own vocabulary of {}",
                               *at, set.recipe_.vocabulary));
    }
  }
  return set;
}

void TokenSet::append(std::span<const std::int32_t> tokens) {
  SW_CHECK(!file_, "a mapped token set is not written to");
  if (is_wide_) {
    std::ranges::transform(tokens, std::back_inserter(wide_),
                           [](std::int32_t id) { return static_cast<std::uint32_t>(id); });
  } else {
    const std::size_t before = narrow_.size();
    narrow_.resize(before + tokens.size());
    std::ranges::transform(tokens, narrow_.begin() + static_cast<std::ptrdiff_t>(before),
                           [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
  }
}

void TokenSet::end_prompt() { first_target_ = static_cast<std::uint64_t>(tokens()); }

void TokenSet::end_document() {
  const auto end = static_cast<std::uint64_t>(tokens());
  const std::uint64_t begin = documents_.empty() ? 0 : documents_.back().end;
  SW_CHECK(end > begin, "document {} has no token", documents_.size());
  documents_.push_back({end, std::max(first_target_, begin)});
}

std::int64_t TokenSet::tokens() const {
  return static_cast<std::int64_t>(is_wide_ ? wide().size() : narrow().size());
}

std::span<const DocumentRecord> TokenSet::documents() const {
  if (file_) {
    return {reinterpret_cast<const DocumentRecord*>(file_->bytes().data() + sizeof(Header)),
            documents_in_file_};
  }
  return documents_;
}

void TokenSet::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto first = static_cast<std::size_t>(begin);
  if (is_wide_) {
    std::ranges::transform(wide().subspan(first, out.size()), out.begin(),
                           [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
  } else {
    std::ranges::copy(narrow().subspan(first, out.size()), out.begin());
  }
}

std::optional<std::int64_t> TokenSet::first_beyond(std::int64_t vocabulary,
                                                   std::int64_t begin) const {
  const auto search = [&](auto ids) -> std::optional<std::int64_t> {
    const auto found = std::find_if(ids.begin() + begin, ids.end(), [&](auto id) {
      return std::cmp_greater_equal(id, vocabulary);
    });
    return found == ids.end() ? std::nullopt : std::optional<std::int64_t>(found - ids.begin());
  };
  return is_wide_ ? search(wide()) : search(narrow());
}

std::uint64_t TokenSet::checksum() const {
  if (file_) {
    return checksum_in_file_;
  }
  return combine(hash64(std::as_bytes(documents())), hash64(token_bytes()));
}

void TokenSet::write(Files& files, const fs::path& path) const {
  Header header;
  header.bytes_per_token = is_wide_ ? 4 : 2;
  header.vocabulary = static_cast<std::uint64_t>(recipe_.vocabulary);
  header.tokens = static_cast<std::uint64_t>(tokens());
  header.documents = documents().size();
  header.flags = (recipe_.add_bos ? kBosFlag : 0) | (recipe_.add_eos ? kEosFlag : 0);
  header.padding = recipe_.padding;
  std::ranges::copy(recipe_.tokenizer, header.tokenizer.begin());
  header.documents_checksum = hash64(std::as_bytes(documents()));
  header.tokens_checksum = hash64(token_bytes());
  header.header_checksum = checksum_of(header);

  fs::path temporary = path;
  temporary += ".tmp";
  try {
    const std::unique_ptr<OutputFile> file = files.create(temporary);
    file->write(std::as_bytes(std::span(&header, 1)));
    file->write(std::as_bytes(documents()));
    file->write(token_bytes());
    file->sync();
    file->close();
  } catch (const DataError&) {
    remove_quietly(files, temporary);
    throw;
  }
  files.rename(temporary, path);
  files.sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

std::span<const std::byte> TokenSet::token_bytes() const {
  return is_wide_ ? std::as_bytes(wide()) : std::as_bytes(narrow());
}

std::span<const std::uint16_t> TokenSet::narrow() const {
  if (!file_) {
    return narrow_;
  }
  const auto bytes = file_->bytes().subspan(tokens_at_);
  return {reinterpret_cast<const std::uint16_t*>(bytes.data()), bytes.size() / 2};
}

std::span<const std::uint32_t> TokenSet::wide() const {
  if (!file_) {
    return wide_;
  }
  const auto bytes = file_->bytes().subspan(tokens_at_);
  return {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / 4};
}

}  // namespace sw
