#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"

/// Runs a job of every backend inside a test.
namespace sw::test {

enum class Backend { Local, Shm };
[[nodiscard]] std::string_view to_text(Backend backend);

/// How one rank ended.
struct Outcome {
  std::string error;    ///< what it threw, with the kind: "CommError: …"
  int signal = 0;       ///< what killed it
  bool failed = false;  ///< an expectation in it did not hold
};

struct Job {
  Backend backend = Backend::Local;
  int ranks = 1;
  WorldOptions options = {};
  /// shm: called in the parent while the ranks run, with their process ids.
  std::function<void(ShmJob&, const std::vector<int>& processes)> meanwhile = {};
  /// shm: the parent aborts the job when a rank was killed, as a supervisor does.
  bool supervised = true;
};

/// Runs `body` as every rank of a job: threads, or processes forked here.
std::vector<Outcome> run_ranks(const Job& job, const std::function<void(World&)>& body);

/// The same, and no rank may fail.
void expect_ranks(const Job& job, const std::function<void(World&)>& body);

/// Memory in a rank's window, handed out piece by piece.
class Window {
 public:
  explicit Window(World& world, std::int64_t bytes = 1 << 20)
      : free_(world.allocate_window(bytes)) {}

  template <typename T>
  std::span<T> take(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    const std::size_t aligned = (bytes + 63) / 64 * 64;
    if (aligned > free_.size()) throw InternalError("the test's window is too small");
    auto* data = reinterpret_cast<T*>(free_.data());
    free_ = free_.subspan(aligned);
    return {data, static_cast<std::size_t>(count)};
  }

 private:
  std::span<std::byte> free_;
};

template <typename T>
std::byte* bytes_of(std::span<T> values) {
  return reinterpret_cast<std::byte*>(values.data());
}

[[nodiscard]] std::vector<int> first_ranks(int count);

}  // namespace sw::test
