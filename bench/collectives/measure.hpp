#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

/// What the programs that time collectives have in common; knows no library. A program is called
/// with cases, KIND:BYTES:CALLS:BATCHES; BYTES are those of the whole buffer, of float32.
namespace bench {

struct Case {
  std::string kind;
  std::int64_t bytes = 0;
  int calls = 1;
  int batches = 1;
};

inline std::vector<Case> parse_cases(int begin, int count, char** arguments) {
  std::vector<Case> cases;
  for (int i = begin; i < count; ++i) {
    Case one;
    char kind[32] = {};
    long long bytes = 0;
    if (std::sscanf(arguments[i], "%31[a-z_]:%lld:%d:%d", kind, &bytes, &one.calls, &one.batches) !=
        4) {
      std::fprintf(stderr, "'%s' is not KIND:BYTES:CALLS:BATCHES\n", arguments[i]);
      std::exit(2);
    }
    one.kind = kind;
    one.bytes = bytes;
    cases.push_back(one);
  }
  return cases;
}

/// Times `call`; `barrier` lets the ranks begin a batch together. Rank 0 prints a line of JSON with
/// the seconds per call of each batch.
inline void measure(const Case& one, int rank, const std::function<void()>& barrier,
                    const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUpCalls = 3;
  for (int i = 0; i < kWarmUpCalls; ++i) call();
  std::vector<double> seconds;
  for (int batch = 0; batch < one.batches; ++batch) {
    barrier();
    const auto start = Clock::now();
    for (int i = 0; i < one.calls; ++i) call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / one.calls);
  }
  if (rank != 0) return;
  std::printf("{\"kind\": \"%s\", \"bytes\": %lld, \"seconds\": [", one.kind.c_str(),
              static_cast<long long>(one.bytes));
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    std::printf("%s%.9f", i == 0 ? "" : ", ", seconds[i]);
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

}  // namespace bench
