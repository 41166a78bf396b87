#pragma once

#include <cstdint>

namespace sw::kernels::cpu {

/// c[m, n] = (or +=) a b in float32, row-major; a is stored [m, k] or, transposed, [k, m], b [k, n]
/// or [n, k]; `*_row` are elements from one stored row to the next. Runs in the calling thread
/// alone. Throws DeviceError when oneDNN refuses.
struct Sgemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* a = nullptr;
  bool a_transposed = false;
  std::int64_t a_row = 0;
  const float* b = nullptr;
  bool b_transposed = false;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  bool accumulate = false;
};
void sgemm(const Sgemm& product);

}  // namespace sw::kernels::cpu
