#include "kernels/cpu/onednn/sgemm.hpp"

#include <dnnl.h>
#include <omp.h>

#include "base/error.hpp"

namespace sw::kernels::cpu {

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

}  // namespace sw::kernels::cpu
