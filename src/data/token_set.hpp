#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.hpp"

/// A token set: the token stream of some documents, in memory or in a file that is mapped. The
/// file's layout is in docs/data.md.
namespace sw {

inline constexpr std::string_view kTokenSetExtension = ".tokens";

/// A document's place in the token stream: it starts where the one before ends.
struct DocumentRecord {
  std::uint64_t end = 0;           ///< one past its last token
  std::uint64_t first_target = 0;  ///< tokens before this one (a prompt) are never labels
  friend bool operator==(const DocumentRecord&, const DocumentRecord&) = default;
};

/// How the tokens came to be. Sets with equal recipes can stand in one stream.
struct TokenSetRecipe {
  std::string tokenizer;
  std::int64_t vocabulary = 0;
  std::int32_t padding = -1;  ///< -1: the tokenizer has none
  bool add_bos = false;
  bool add_eos = false;
  friend bool operator==(const TokenSetRecipe&, const TokenSetRecipe&) = default;
};

enum class Verify : std::uint8_t {
  Everything,  ///< reads the whole file: checksums, every id
  Structure,   ///< header and document table: for ranks, after their launcher verified everything
};

class TokenSet {
 public:
  /// An empty set to append to.
  explicit TokenSet(TokenSetRecipe recipe);
  /// Maps a file. ConfigError when it is no token set, of another version, cut or damaged.
  [[nodiscard]] static TokenSet open(const std::filesystem::path& path, Verify verify);

  /// Appends to the document being written. Not for a mapped set.
  void append(std::span<const std::int32_t> tokens);
  /// Marks what was appended to the document so far as prompt.
  void end_prompt();
  /// The document must hold a token.
  void end_document();

  /// Writes the file so that it is the old or the new one, whatever happens (DataError).
  void write(Files& files, const std::filesystem::path& path) const;

  [[nodiscard]] const TokenSetRecipe& recipe() const { return recipe_; }
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::span<const DocumentRecord> documents() const;
  /// Tokens [begin, begin + out.size()).
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;
  /// Place of the first id that is `vocabulary` or more, from token `begin` on.
  [[nodiscard]] std::optional<std::int64_t> first_beyond(std::int64_t vocabulary,
                                                         std::int64_t begin = 0) const;
  /// Of tokens and documents; equal in memory and in the file.
  [[nodiscard]] std::uint64_t checksum() const;

 private:
  [[nodiscard]] std::span<const std::byte> token_bytes() const;
  [[nodiscard]] std::span<const std::uint16_t> narrow() const;
  [[nodiscard]] std::span<const std::uint32_t> wide() const;

  TokenSetRecipe recipe_;
  bool is_wide_ = false;  ///< 4 bytes a token, for vocabularies beyond 65536
  // One of: the file, or what was appended.
  std::optional<MappedFile> file_;
  std::size_t tokens_at_ = 0;  ///< in the file
  std::size_t documents_in_file_ = 0;
  std::uint64_t checksum_in_file_ = 0;
  std::vector<std::uint16_t> narrow_;
  std::vector<std::uint32_t> wide_;
  std::vector<DocumentRecord> documents_;
  std::uint64_t first_target_ = 0;  ///< of the document being written
};

/// Whether a file starts like a token set (ConfigError when it cannot be read).
[[nodiscard]] bool is_token_set(const std::filesystem::path& path);

}  // namespace sw
