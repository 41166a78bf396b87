#include "bench/peak.hpp"

#include <chrono>
#include <cstdint>

namespace sw::bench {
namespace {

#if defined(__x86_64__)

// Twelve sums: a multiply-add every half cycle whose result is ready after four or five.
#define SW_TWELVE(of) of(0) of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8) of(9) of(10) of(11)
#define SW_YMM(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n\t"
#define SW_ZMM(i) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n\t"

[[gnu::target("avx2,fma")]] void run_avx2(std::int64_t rounds) {
  asm volatile("vzeroall\n1:\n\t" SW_TWELVE(SW_YMM)
                   SW_TWELVE(SW_YMM) "dec %0\n\tjnz 1b\n\tvzeroupper"
               : "+r"(rounds)
               :
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                 "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
}

[[gnu::target("avx512f")]] void run_avx512(std::int64_t rounds) {
  asm volatile("vzeroall\n1:\n\t" SW_TWELVE(SW_ZMM)
                   SW_TWELVE(SW_ZMM) "dec %0\n\tjnz 1b\n\tvzeroupper"
               : "+r"(rounds)
               :
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                 "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
}

#undef SW_TWELVE
#undef SW_YMM
#undef SW_ZMM

#endif

}  // namespace

double multiply_add_peak(Team& team) {
#if defined(__x86_64__)
  constexpr std::int64_t kRounds = 2'000'000;
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  if (!wide && __builtin_cpu_supports("fma") == 0) return 0;
  const double begin = now_s();
  // More tiles than threads, so that a disturbed thread holds none up for long.
  const int tiles = 4 * team.threads();
  team.run(tiles,
           [wide](std::int64_t, int) { wide ? run_avx512(kRounds / 4) : run_avx2(kRounds / 4); });
  const double each = 24.0 * kRounds * 2 * (wide ? 16 : 8);
  return each * team.threads() / (now_s() - begin);
#else
  (void)team;
  return 0;
#endif
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sw::bench
