#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/peak.hpp"
#include "device/team.hpp"

/// limits THREADS [fma|memory]: what THREADS threads of this machine can do at once, as a line of
/// JSON: FLOP/s of float32 fused multiply-adds, and bytes/s of copying (a byte copied counts once),
/// of adding into a third buffer and of adding in place (a byte of the result counts once), in
/// memory far larger than any cache, with ordinary or non-temporal stores, whichever is faster.
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kBytes = std::size_t{128} << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The time of `body(thread)` on all threads at once, from the first to begin to the last to end.
template <typename Body>
double together(int threads, const Body& body) {
  std::atomic<int> ready = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.emplace_back([&, thread] {
      ++ready;
      while (!go) {
      }
      body(thread);
    });
  }
  while (ready < threads) std::this_thread::yield();
  const auto start = Clock::now();
  go = true;
  for (std::thread& one : team) one.join();
  return seconds_since(start);
}

#if defined(__x86_64__)

// Four loads ahead of four stores, as a compiler would not have them.
template <bool kPast>
__attribute__((target("avx"))) void add(float* to, const float* a, const float* b,
                                        std::size_t count) {
  for (std::size_t i = 0; i < count; i += 32) {
    __m256 sum[4];
    for (int k = 0; k < 4; ++k) {
      sum[k] = _mm256_add_ps(_mm256_load_ps(a + i + 8 * k), _mm256_load_ps(b + i + 8 * k));
    }
    for (int k = 0; k < 4; ++k) {
      kPast ? _mm256_stream_ps(to + i + 8 * k, sum[k]) : _mm256_store_ps(to + i + 8 * k, sum[k]);
    }
  }
  _mm_sfence();
}
template <bool kPast>
__attribute__((target("avx"))) void copy(float* to, const float* a, const float*,
                                         std::size_t count) {
  for (std::size_t i = 0; i < count; i += 32) {
    __m256 value[4];
    for (int k = 0; k < 4; ++k) value[k] = _mm256_load_ps(a + i + 8 * k);
    for (int k = 0; k < 4; ++k) {
      kPast ? _mm256_stream_ps(to + i + 8 * k, value[k])
            : _mm256_store_ps(to + i + 8 * k, value[k]);
    }
  }
  _mm_sfence();
}

#else

template <bool>
void add(float* to, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}
template <bool>
void copy(float* to, const float* a, const float*, std::size_t count) {
  std::memcpy(to, a, count * sizeof(float));
}

#endif

void library_copy(float* to, const float* a, const float*, std::size_t count) {
  std::memcpy(to, a, count * sizeof(float));
}

float* take_memory() {
  void* memory =
      mmap(nullptr, 3 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("limits: mmap");
    std::exit(1);
  }
  (void)madvise(memory, 3 * kBytes, MADV_HUGEPAGE);
  std::memset(memory, 0, 3 * kBytes);
  return static_cast<float*>(memory);
}

using Pass = void (*)(float* to, const float* a, const float* b, std::size_t count);

/// The best of a few tries of each pass; `target` is which of the three buffers is written.
double bytes_per_s(const std::vector<float*>& memory, std::size_t target,
                   const std::vector<Pass>& passes) {
  constexpr int kTries = 5;
  constexpr std::size_t kCount = kBytes / sizeof(float);
  const int threads = static_cast<int>(memory.size());
  double best = 0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    for (const Pass pass : passes) {
      const double seconds = together(threads, [&](int thread) {
        float* buffers = memory[static_cast<std::size_t>(thread)];
        pass(buffers + target * kCount, buffers, buffers + kCount, kCount);
      });
      best = std::max(best, static_cast<double>(kBytes) * threads / seconds);
    }
  }
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const bool memory_too = count < 3 || std::strcmp(arguments[2], "memory") == 0;
  const bool fma_too = count < 3 || std::strcmp(arguments[2], "fma") == 0;
  double best_fma = 0;
  if (fma_too) {
    sw::Team team(threads);
    for (int attempt = 0; attempt < 5; ++attempt) {
      best_fma = std::max(best_fma, sw::bench::multiply_add_peak(team));
    }
  }
  std::printf("{\"threads\": %d, \"fma_flops_per_s\": %.4g", threads, best_fma);
  if (memory_too) {
    std::vector<float*> memory(static_cast<std::size_t>(threads));
    for (float*& one : memory) one = take_memory();
    std::printf(", \"copy_bytes_per_s\": %.4g",
                bytes_per_s(memory, 2, {copy<false>, copy<true>, library_copy}));
    std::printf(", \"add_bytes_per_s\": %.4g", bytes_per_s(memory, 2, {add<false>, add<true>}));
    std::printf(", \"add_in_place_bytes_per_s\": %.4g",
                bytes_per_s(memory, 0, {add<false>, add<true>}));
  }
  std::printf("}\n");
}
