#include "kernels/einsum.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/views.hpp"
#include "kernels/notes.hpp"

namespace sw::kernels {

std::string matrix_product_note(DType dtype) {
  std::string how =
      fmt::format("matrix products in float32 ({}) on packed operands", simd::instruction_set());
  if (dtype == DType::Float32) return how;
  return fmt::format("{}; {} is {} and rounded once on store", how, to_text(dtype),
                     simd::fastest_factors() == simd::Factors::Pairs ? "multiplied in pairs"
                                                                     : "converted while packing");
}

namespace cpu {
namespace {

/// A transposed result is the product of the transposed operands the other way round.
void untranspose(MatrixProduct& product, View& a, View& b) {
  if (!product.result_transposed) return;
  std::swap(a, b);
  std::swap(product.m, product.n);
  const bool a_transposed = product.a_transposed;
  product.a_transposed = !product.b_transposed;
  product.b_transposed = !a_transposed;
  product.result_transposed = false;
}

Prepared prepare_einsum(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 2, 1);
  View a = call.inputs[0];
  View b = call.inputs[1];
  MatrixProduct product = matrix_product(std::get<EinsumParameters>(call.parameters).spec, a.shape,
                                         b.shape, call.outputs[0].shape);
  untranspose(product, a, b);
  const View c = call.outputs[0];
  const bool add = accumulates(call, 0);
  const std::int64_t count = product.m * product.n;
  if (count == 0 || product.k == 0) {
    return [c, count, add](Team&) {
      if (!add) fill_zero(c, 0, count);
    };
  }
  return
      [packed = Product(product, a, b, c, add, scratch, threads)](Team& team) { packed.run(team); };
}

}  // namespace

std::vector<Operator> einsum_operators() { return {{"einsum", prepare_einsum}}; }

}  // namespace cpu
}  // namespace sw::kernels
