#include "program/operand_counts.hpp"

#include <algorithm>

namespace sw {

const std::vector<OperandCounts>& operand_counts() {
  constexpr int kAny = 1 << 20;
  static const std::vector<OperandCounts> kCounts = {
      {"add", 2, kAny, 1, true},
      {"attention", 7, 7, 2, false},
      {"attention_grad", 10, 10, 3, false},
      {"balance_grad", 4, 4, 1, false},
      {"balance_loss", 4, 4, 1, false},
      {"bias_add", 2, 2, 1, true},
      {"bias_add_grad", 1, 1, 1, false},
      {"cast", 1, 1, 1, true},
      {"combine", 1, 1, 1, false},
      {"dispatch", 1, 1, 1, false},
      {"drop_slots", 1, 1, 1, false},
      {"dropout", 2, 2, 1, true},
      {"dropout_grad", 2, 2, 1, true},
      {"einsum", 2, 2, 1, false},
      {"embedding", 2, 2, 1, false},
      {"embedding_grad", 3, 3, 1, false},
      {"expert_load", 2, 2, 1, false},
      {"expert_product", 3, 3, 1, false},
      {"expert_product_grad_input", 3, 3, 1, false},
      {"expert_product_grad_weight", 3, 3, 1, false},
      {"gelu", 1, 1, 1, true},
      {"gelu_grad", 2, 2, 1, true},
      {"layer_norm", 3, 3, 1, false},
      {"layer_norm_grad", 4, 4, 3, false},
      {"loss_grad", 5, 5, 1, true},
      {"loss_sum", 2, 2, 1, false},
      {"pick", 2, 2, 1, false},
      {"rms_norm", 2, 2, 1, false},
      {"rms_norm_grad", 3, 3, 2, false},
      {"rope", 2, 2, 1, true},
      {"rope_grad", 2, 2, 1, true},
      {"route", 1, 2, 2, false},
      {"route_grad", 3, 3, 1, false},
      {"row_max", 1, 1, 1, false},
      {"scale_rows", 2, 2, 1, true},
      {"scale_rows_grad", 3, 3, 2, true},
      {"sigmoid", 1, 1, 1, true},
      {"sigmoid_grad", 2, 2, 1, true},
      {"sum_exp", 2, 2, 1, false},
      {"swiglu", 2, 2, 1, true},
      {"swiglu_grad", 3, 3, 2, true},
      {"token_loss", 4, 4, 1, false},
      {"z_grad", 3, 3, 1, false},
      {"z_loss", 3, 3, 1, false},
  };
  return kCounts;
}

const OperandCounts* find_operand_counts(std::string_view op) {
  const std::vector<OperandCounts>& list = operand_counts();
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const OperandCounts& c) { return c.op == op; });
  return at == list.end() ? nullptr : &*at;
}

}  // namespace sw
