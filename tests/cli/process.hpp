#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

/// The program itself, run as a user runs it.
namespace sw::test {

struct Ended {
  int status = -1;  ///< exit status; 128 + signal when killed
  std::string out;
  std::string error;
};

/// A started command whose standard error can be read while it runs.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t id() const { return id_; }
  /// Reads standard error until `text` was seen; false when it ended without.
  bool wait_for(const std::string& text);
  /// Direct children: the ranks.
  [[nodiscard]] std::vector<pid_t> children() const;
  Ended wait();

 private:
  bool read_more();

  pid_t id_ = -1;
  int out_ = -1;
  int error_ = -1;
  std::string error_text_;
};

/// Runs `shardwright ARGUMENTS…` to its end.
Ended shardwright(const std::vector<std::string>& arguments);

}  // namespace sw::test
