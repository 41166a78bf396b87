// adamw THREADS: seconds of one AdamW update of 124M parameters in float32, and of a loop that
// streams the same bytes (weights, two moments read and written, gradients read) and computes next
// to nothing; as a line of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "bench/peak.hpp"
#include "device/arena.hpp"
#include "device/team.hpp"
#include "kernels/kernel.hpp"

namespace sw::bench {
namespace {

constexpr std::int64_t kCount = 124'439'808;
constexpr std::int64_t kTile = 16384;

struct State {
  Arena arenas[4] = {Arena(kCount * 4), Arena(kCount * 4), Arena(kCount * 4), Arena(kCount * 4)};
  [[nodiscard]] float* array(int i) const { return reinterpret_cast<float*>(arenas[i].data()); }
};

#if defined(__x86_64__)
__attribute__((target("avx2"), optimize("O3")))
#endif
void add(float* __restrict weights, float* __restrict first, float* __restrict second,
         const float* __restrict gradients, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    weights[i] += gradients[i];
    first[i] += gradients[i];
    second[i] += gradients[i];
  }
}

void stream(Team& team, const State& state) {
  team.run((kCount + kTile - 1) / kTile, [&](std::int64_t tile, int) {
    const std::int64_t begin = tile * kTile;
    add(state.array(0) + begin, state.array(1) + begin, state.array(2) + begin,
        state.array(3) + begin, std::min(kTile, kCount - begin));
  });
}

template <typename Body>
double seconds_of(const Body& body) {
  const double begin = now_s();
  body();
  return now_s() - begin;
}

void run(int threads) {
  Team team(threads);
  const State state;
  for (int i = 0; i < 4; ++i) {
    for (std::int64_t k = 0; k < kCount; ++k) state.array(i)[k] = 1e-3F;
  }
  kernels::AdamwStep step;
  step.count = kCount;
  step.gradient = state.array(3);
  step.master = state.array(0);
  step.momentum = state.array(1);
  step.variance = state.array(2);
  step.weight_decay = 0.1F;
  kernels::AdamwScalars scalars;
  scalars.learning_rate = 1e-4F;
  kernels::adamw(team, step, scalars);
  for (int round = 0; round < 3; ++round) {
    const double streamed = seconds_of([&] { stream(team, state); });
    const double updated = seconds_of([&] { kernels::adamw(team, step, scalars); });
    fmt::print("{{\"stream_s\": {:.6f}, \"adamw_s\": {:.6f}}}\n", streamed, updated);
  }
}

}  // namespace
}  // namespace sw::bench

int main(int argc, char** argv) { sw::bench::run(argc > 1 ? std::atoi(argv[1]) : 1); }
