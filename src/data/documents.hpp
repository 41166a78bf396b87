#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/options.hpp"

namespace sw {

/// What was found while a corpus was read. documents + empty_documents + bad_lines of JSONL files
/// + blank_lines = lines.
struct CorpusCounts {
  std::int64_t files = 0;
  std::int64_t bytes = 0;            ///< of the files
  std::int64_t lines = 0;            ///< of JSONL files
  std::int64_t documents = 0;        ///< that gave tokens
  std::int64_t empty_documents = 0;  ///< left out: no text, or nothing but white space
  std::int64_t blank_lines = 0;      ///< of JSONL files
  std::int64_t bad_lines = 0;        ///< left out with bad_lines = "skip"
  std::int64_t tokens = 0;
  std::vector<std::string> first_bad_lines;  ///< at most five: file, line, byte, reason, excerpt
};

/// A document's text, valid UTF-8; both parts point into memory that lives for the call only.
struct Document {
  std::string_view prompt;  ///< its tokens are no targets
  std::string_view text;
};

enum class FileKind : std::uint8_t { Text, Jsonl, TokenSet };

/// By content for a token set, by name for JSONL (.jsonl, .ndjson, .json); all else is text.
/// ConfigError for formats that are known and not read (compressed, Parquet, …).
[[nodiscard]] FileKind kind_of(const std::filesystem::path& file);

/// Reads a text file (one document) or JSONL file (one a line) and hands each document that is not
/// empty to `each`. A bad line throws ConfigError with file, line, byte, reason and excerpt, or is
/// left out and counted. `counts.tokens` is not touched.
void read_documents(const std::filesystem::path& file, FileKind kind, const DataOptions& options,
                    CorpusCounts& counts, const std::function<void(const Document&)>& each);

}  // namespace sw
