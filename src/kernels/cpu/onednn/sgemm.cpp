#include "kernels/cpu/onednn/sgemm.hpp"

#include <dnnl.h>
#include <omp.h>

#include "base/error.hpp"
#include "kernels/notes.hpp"

namespace sw::kernels {
namespace {

const char* instruction_set() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    default:
      return dnnl_get_effective_cpu_isa() > dnnl_cpu_isa_avx2 ? "AVX-512 or newer"
                                                              : "any instruction set";
  }
}

}  // namespace

std::string matrix_product_note(DType dtype) {
  const dnnl_version_t* version = dnnl_version();
  const std::string library =
      fmt::format("oneDNN {}.{}.{} in float32 ({}), one thread per tile", version->major,
                  version->minor, version->patch, instruction_set());
  if (dtype == DType::Float32) return library;
  return fmt::format(
      "{} operands converted to float32 once per product, multiplied by {}, rounded "
      "once on store",
      to_text(dtype), library);
}

namespace cpu {

void sgemm(const Sgemm& p) {
  // A setting of the calling thread: oneDNN opens no OpenMP team in it.
  omp_set_num_threads(1);
  const dnnl_status_t status =
      dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0F, p.a,
                 p.a_row, p.b, p.b_row, p.accumulate ? 1.0F : 0.0F, p.c, p.c_row);
  if (status != dnnl_success) {
    throw DeviceError(fmt::format("oneDNN refused a product of {} x {} x {} with status {}", p.m,
                                  p.n, p.k, static_cast<int>(status)));
  }
}

}  // namespace cpu
}  // namespace sw::kernels
