#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sw {

enum class Documents : std::uint8_t { Isolated, Joined };
enum class LastWindow : std::uint8_t { Pad, Drop };
enum class BadLines : std::uint8_t { Stop, Skip };

/// [data] of a run file.
struct DataOptions {
  std::vector<std::string> train;  ///< files or patterns: text, JSONL, a token set
  std::vector<std::string> validation;
  std::int64_t validation_every = 0;  ///< steps; 0 = never
  std::string tokenizer = "bytes";
  std::int64_t sequence_length = 256;
  Documents documents = Documents::Isolated;
  LastWindow last_window = LastWindow::Pad;
  BadLines bad_lines = BadLines::Stop;
  bool add_bos = false;
  bool add_eos = true;
  bool log_samples = false;  ///< samples.jsonl in the run folder
  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

}  // namespace sw
