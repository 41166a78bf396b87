#include "device/team.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

// Long enough to bridge the gap between two kernels (a few microseconds), short enough not to
// matter when more threads than cores share the machine.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Returns when `word` no longer holds `value`: spins, then sleeps (futex).
template <typename T>
void wait_while(const std::atomic<T>& word, T value) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (word.load(std::memory_order_acquire) != value) return;
    relax();
  }
  while (word.load(std::memory_order_acquire) == value) word.wait(value, std::memory_order_acquire);
}

}  // namespace

struct Team::State {
  // A job: written by the owner before `generation` changes, read by workers after.
  const std::function<void(std::int64_t, int)>* body = nullptr;
  std::int64_t tiles = 0;
  bool stop = false;

  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<std::int64_t> next_tile{0};
  alignas(64) std::atomic<int> working{0};
  std::vector<std::thread> workers;

  void take_tiles(int thread) {
    for (;;) {
      const std::int64_t tile = next_tile.fetch_add(1, std::memory_order_relaxed);
      if (tile >= tiles) return;
      (*body)(tile, thread);
    }
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      wait_while(generation, seen);
      ++seen;
      if (stop) return;
      take_tiles(thread);
      if (working.fetch_sub(1, std::memory_order_acq_rel) == 1) working.notify_one();
    }
  }

  void wake() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }
};

Team::Team(int threads) : state_(std::make_unique<State>()) {
  SW_CHECK(threads >= 1, "a team of {} threads", threads);
  for (int thread = 1; thread < threads; ++thread) {
    state_->workers.emplace_back([state = state_.get(), thread] { state->work(thread); });
  }
}

Team::~Team() {
  state_->stop = true;
  state_->wake();
  for (std::thread& worker : state_->workers) worker.join();
}

int Team::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void Team::run(std::int64_t tiles, const std::function<void(std::int64_t tile, int thread)>& body) {
  if (tiles <= 1 || state_->workers.empty()) {
    for (std::int64_t tile = 0; tile < tiles; ++tile) body(tile, 0);
    return;
  }
  state_->body = &body;
  state_->tiles = tiles;
  state_->next_tile.store(0, std::memory_order_relaxed);
  state_->working.store(static_cast<int>(state_->workers.size()), std::memory_order_relaxed);
  state_->wake();
  state_->take_tiles(0);
  for (int left = state_->working.load(std::memory_order_acquire); left != 0;
       left = state_->working.load(std::memory_order_acquire)) {
    wait_while(state_->working, left);
  }
}

}  // namespace sw
