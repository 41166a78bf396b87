#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace sw {

/// The threads of one rank: the caller and `threads - 1` workers. Work is cut into tiles whose
/// number and bounds the caller chooses without looking at the number of threads, so threads change
/// no bit.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int threads() const;

  /// Calls `body(tile, thread)` for every tile in [0, tiles), spread over the threads; returns when
  /// all are done. `thread` is in [0, threads()) and lets a body pick its own scratch. `body` must
  /// not throw. Not reentrant; only the thread that owns the team may call it.
  void run(std::int64_t tiles, const std::function<void(std::int64_t tile, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sw
