#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sw {

/// What a run file says under [data]; the names are the keys. See docs/data.md.
struct DataOptions {
  enum class Documents : std::uint8_t { Isolated, Joined };
  enum class LastWindow : std::uint8_t { Pad, Drop };
  enum class BadLines : std::uint8_t { Stop, Skip };
  enum class Balance : std::uint8_t { None, Tokens, Attention };

  std::vector<std::string> train = {};       ///< patterns, relative to the run file
  std::vector<std::string> validation = {};  ///< patterns, relative to the run file
  std::int64_t validation_every = 0;         ///< steps; 0 = never
  std::string tokenizer = "bytes";
  std::int64_t sequence_length = 256;
  Documents documents = Documents::Isolated;
  LastWindow last_window = LastWindow::Pad;
  Balance balance = Balance::None;  ///< which rows of a window go to which rank
  BadLines bad_lines = BadLines::Stop;
  std::int64_t max_bad_lines = 1000;  ///< with BadLines::Skip: more in one corpus are refused
  bool add_bos = false;
  bool add_eos = true;
  bool log_samples = false;
  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

/// Refuses values that contradict each other or make no sense, by key (ConfigError). Touches no
/// file.
void check(const DataOptions& options);

}  // namespace sw
