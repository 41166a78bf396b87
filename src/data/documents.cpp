#include "data/documents.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "data/token_set.hpp"
#include "data/utf8.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kParsedLine = "the line";
constexpr std::size_t kBadLinesShown = 5;

/// Why a line is bad.
class BadLine : public Error {
  using Error::Error;
};

bool only_white_space(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

void check_utf8(std::string_view line) {
  const std::size_t at = first_invalid_utf8(line);
  if (at < line.size()) {
    throw BadLine(fmt::format("byte 0x{:02x} at column {} is not valid UTF-8",
                              static_cast<unsigned char>(line[at]), at + 1));
  }
}

const std::string& string_of(const Json& object, const char* key) {
  const Json& value = object.at(key);
  if (!value.is_string()) {
    throw BadLine(fmt::format("\"{}\" is {} and not a string", key,
                              value.is_null() ? "null" : value.type_name()));
  }
  return value.get_ref<const std::string&>();
}

/// The parser's reason without the places that it counts from the start of the line it was given.
std::string without_place(std::string_view reason) {
  reason.remove_prefix(reason.starts_with(kParsedLine) ? kParsedLine.size() + 2 : 0);
  std::string text(reason);
  const std::size_t begin = text.find("parse error at ");
  const std::size_t end = text.find(": ", begin);
  return end == std::string::npos ? text : text.erase(begin, end + 2 - begin);
}

/// The document of a parsed line; its parts point into `line`.
Document document_of(const Json& line) {
  if (!line.is_object()) {
    throw BadLine(fmt::format("the line is no object but {}", line.type_name()));
  }
  const bool has_text = line.contains("text");
  const bool has_prompt = line.contains("prompt");
  const bool has_completion = line.contains("completion");
  if (has_text && (has_prompt || has_completion)) {
    throw BadLine("the line has \"text\" and also \"prompt\" or \"completion\"");
  }
  if (has_text) {
    return {{}, string_of(line, "text")};
  }
  if (has_prompt != has_completion) {
    throw BadLine(fmt::format("the line has no \"{}\"", has_prompt ? "completion" : "prompt"));
  }
  if (!has_prompt) {
    throw BadLine("the line has no \"text\"");
  }
  return {string_of(line, "prompt"), string_of(line, "completion")};
}

/// One file being read.
class Reader {
 public:
  Reader(const fs::path& path, const DataOptions& options, CorpusCounts& counts,
         const std::function<void(const Document&)>& each)
      : path_(path), options_(options), counts_(counts), each_(each), file_(path) {
    const auto bytes = file_.bytes();
    content_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    ++counts_.files;
    counts_.bytes += static_cast<std::int64_t>(content_.size());
  }

  void read_text() {
    begin_ = content_.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    const std::string_view text = content_.substr(begin_);
    if (first_invalid_utf8(text) == text.size()) {
      give({{}, text});
      return;
    }
    std::string valid_lines;
    for_each_line([&](std::string_view line) {
      check_utf8(line);
      valid_lines += line;
    });
    give({{}, valid_lines});
  }

  void read_jsonl() {
    for_each_line([&](std::string_view line) {
      ++counts_.lines;
      if (line.starts_with(kByteOrderMark)) {  // files put one after the other bring theirs along
        line.remove_prefix(kByteOrderMark.size());
      }
      if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        ++counts_.blank_lines;
        return;
      }
      check_utf8(line);
      const Json parsed = parse(line);
      give(document_of(parsed));
    });
  }

 private:
  /// Lines keep their line feed. A line that throws BadLine is counted or ends the reading.
  template <typename Function>
  void for_each_line(const Function& function) {
    std::int64_t number = 0;
    for (std::size_t at = begin_; at < content_.size();) {
      const std::size_t feed = content_.find('\n', at);
      const std::size_t end = feed == std::string_view::npos ? content_.size() : feed + 1;
      const std::string_view line = content_.substr(at, end - at);
      ++number;
      try {
        function(line);
      } catch (const BadLine& bad) {
        refuse_or_count(number, at, line, bad.what());
      }
      at = end;
    }
  }

  static Json parse(std::string_view line) {
    try {
      return parse_json(line, kParsedLine);
    } catch (const DataError& error) {
      throw BadLine(without_place(error.what()));
    }
  }

  void give(const Document& document) {
    if (only_white_space(document.prompt) && only_white_space(document.text)) {
      ++counts_.empty_documents;
      return;
    }
    ++counts_.documents;
    each_(document);
  }

  void refuse_or_count(std::int64_t number, std::size_t offset, std::string_view line,
                       const char* reason) {
    while (line.ends_with('\n') || line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    const std::string what = fmt::format("{}: line {}, which starts at byte {}: {}: `{}`",
                                         path_.string(), number, offset, reason, excerpt(line));
    if (options_.bad_lines == DataOptions::BadLines::Stop) {
      throw ConfigError(what + "; mend the line, or set data.bad_lines = \"skip\"");
    }
    ++counts_.bad_lines;
    if (counts_.first_bad_lines.size() < kBadLinesShown) {
      counts_.first_bad_lines.push_back(what);
    }
    if (counts_.bad_lines > options_.max_bad_lines) {
      throw ConfigError(
          fmt::format("{} bad lines are more than data.max_bad_lines = {}; the last was {}",
                      counts_.bad_lines, options_.max_bad_lines, what));
    }
  }

  const fs::path& path_;
  const DataOptions& options_;
  CorpusCounts& counts_;
  const std::function<void(const Document&)>& each_;
  MappedFile file_;
  std::string_view content_;
  std::size_t begin_ = 0;  ///< of the first line
};

}  // namespace

FileKind kind_of(const fs::path& file) {
  if (is_token_set(file)) {
    return FileKind::TokenSet;
  }
  const std::string extension = file.extension().string();
  constexpr std::array<std::string_view, 3> kJsonl = {".jsonl", ".ndjson", ".json"};
  constexpr std::array<std::string_view, 12> kNotRead = {
      ".gz",    ".bz2", ".xz",  ".zst", ".zip", ".parquet",
      ".arrow", ".bin", ".idx", ".npy", ".pt",  ".safetensors"};
  if (extension == kTokenSetExtension) {
    throw ConfigError(
        fmt::format("{}: is named like a token set but does not start like one; make it again with "
                    "`shardwright tokenize`",
                    file.string()));
  }
  if (std::ranges::find(kNotRead, extension) != kNotRead.end()) {
    throw ConfigError(
        fmt::format("{}: reading {} files is not in this version; text, JSONL and token sets are",
                    file.string(), extension));
  }
  return std::ranges::find(kJsonl, extension) != kJsonl.end() ? FileKind::Jsonl : FileKind::Text;
}

void read_documents(const fs::path& file, FileKind kind, const DataOptions& options,
                    CorpusCounts& counts, const std::function<void(const Document&)>& each) {
  SW_CHECK(kind != FileKind::TokenSet, "{} is a token set and holds no text", file.string());
  Reader reader(file, options, counts, each);
  if (kind == FileKind::Jsonl) {
    reader.read_jsonl();
  } else {
    reader.read_text();
  }
}

}  // namespace sw
