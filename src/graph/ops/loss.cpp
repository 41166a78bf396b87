#include "graph/ops/ops.hpp"

namespace sw::ops {
namespace {

// The loss is five small operators and not one with hidden communication. logits [B,S,V], labels
// [B,S]; max, sum, picked, token loss [B,S]; count, loss [].

Shapes rows(const kernels::Parameters&, const Shapes& inputs) {
  return {{inputs.at(0).at(0), inputs[0].at(1)}};
}

/// Batch or sequence cut in every input but the last `whole` ones; plus the rows given.
auto cut_rows(std::size_t inputs, std::size_t whole, const std::vector<Signature>& more) {
  return [=](const kernels::Parameters&, const Shapes&, const Shapes&) {
    std::vector<Signature> result{all_replicate(inputs, 1)};
    for (int d = 0; d < 2; ++d) {
      std::vector<Placement> placements(inputs, shard(d));
      std::fill(placements.end() - static_cast<std::ptrdiff_t>(whole), placements.end(),
                replicate());
      result.push_back({placements, {shard(d)}, false});
    }
    result.insert(result.end(), more.begin(), more.end());
    return result;
  };
}

/// Logits are input 0.
kernels::Parameters localize(const kernels::Parameters&, const Shapes& starts, const Shapes&) {
  return kernels::VocabularyParameters{starts.at(0).at(2)};
}

auto flops_per_logit(double per_element) {
  return [per_element](const kernels::Parameters&, const Shapes& inputs, const Shapes&) {
    return per_element * static_cast<double>(elements(inputs.at(0)));
  };
}

Operator row_operator(std::string name, double per_logit) {
  Operator op;
  op.name = std::move(name);
  op.shapes = rows;
  op.flops = flops_per_logit(per_logit);
  return op;
}

}  // namespace

std::vector<Operator> loss() {
  const Placement r = replicate();
  Operator row_max = row_operator("row_max", 1);
  row_max.signatures = cut_rows(1, 0, {{{shard(2)}, {partial(ReduceOp::Max)}, false}});
  Operator sum_exp = row_operator("sum_exp", 4);
  sum_exp.signatures = cut_rows(2, 0, {{{shard(2), r}, {partial()}, false}});
  Operator pick = row_operator("pick", 0);
  pick.signatures = cut_rows(2, 0, {{{shard(2), r}, {partial()}, false}});
  pick.localize = localize;
  Operator token_loss = row_operator("token_loss", 4);
  token_loss.signatures = cut_rows(4, 0, {});

  Operator loss_sum;
  loss_sum.name = "loss_sum";
  loss_sum.shapes = [](const kernels::Parameters&, const Shapes&) -> Shapes { return {Shape{}}; };
  loss_sum.signatures = [r](const kernels::Parameters&, const Shapes&, const Shapes&) {
    return std::vector<Signature>{all_replicate(2, 1),
                                  {{shard(0), r}, {partial()}, false},
                                  {{shard(1), r}, {partial()}, false},
                                  {{partial(), r}, {partial()}, false}};
  };
  loss_sum.flops = flops_per_logit(1);

  Operator loss_grad;  // where differentiation starts: written by hand
  loss_grad.name = "loss_grad";
  loss_grad.shapes = [](const kernels::Parameters&, const Shapes& inputs) -> Shapes {
    return {inputs.at(0)};
  };
  loss_grad.signatures = cut_rows(5, 1, {{{shard(2), r, r, r, r}, {shard(2)}, false}});
  loss_grad.localize = localize;
  loss_grad.flops = flops_per_logit(6);
  loss_grad.in_place = 0;
  return {row_max, sum_exp, pick, token_loss, loss_sum, loss_grad};
}

}  // namespace sw::ops
