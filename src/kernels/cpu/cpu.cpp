#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"

namespace sw::kernels {
namespace cpu {
namespace {

/// The only list of CPU kernels.
std::vector<Operator> all_operators() {
  std::vector<Operator> all;
  for (const auto& part :
       {einsum_operators(), elementwise_operators(), bias_operators(), dropout_operators(),
        norm_operators(), rope_operators(), attention_operators(), attention_grad_operators(),
        embedding_operators(), loss_operators(), route_operators(), slot_operators(),
        expert_product_operators(), balance_operators()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Prepared prepare_in(const KernelCall& call, Scratch& scratch, int threads) {
  for (const Operator& op : all_operators()) {
    if (op.name == call.op) return op.prepare(call, scratch, threads);
  }
  SW_CHECK(false, "operator {} has no CPU kernel", call.op);
  return {};
}

}  // namespace
}  // namespace cpu

std::int64_t scratch_bytes(const KernelCall& call, int threads) {
  cpu::Scratch scratch(nullptr);
  (void)cpu::prepare_in(call, scratch, threads);
  return scratch.used();
}

Prepared prepare(const KernelCall& call, std::byte* scratch, int threads) {
  cpu::Scratch space(scratch);
  return cpu::prepare_in(call, space, threads);
}

std::vector<std::string> cpu_kernel_names() {
  std::vector<std::string> names;
  for (const cpu::Operator& op : cpu::all_operators()) names.emplace_back(op.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace sw::kernels
