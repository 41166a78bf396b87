#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// The slots of each expert, in their order; as of one expert more, those that are empty (choice
/// -1).
class SlotsOfExperts {
 public:
  SlotsOfExperts(const KernelCall& call, const View& choice, std::int64_t experts, Scratch& scratch)
      : choice_(integers(choice)),
        slots_(elements(choice.shape)),
        experts_(experts),
        order_(scratch.take<std::int32_t>(slots_)),
        begin_(scratch.take<std::int64_t>(experts + 2)) {
    SW_CHECK(slots_ > 0 && experts > 0, "{} of {} slots and {} experts", call.op, slots_, experts);
  }

  /// A counting sort.
  void sort() const {
    std::fill_n(begin_, experts_ + 2, 0);
    for (std::int64_t slot = 0; slot < slots_; ++slot) {
      SW_CHECK(choice_[slot] >= -1 && choice_[slot] < experts_, "slot {} chose expert {} of {}",
               slot, choice_[slot], experts_);
      ++begin_[expert_of(slot)];
    }
    std::int64_t end = 0;
    for (std::int64_t expert = 0; expert <= experts_ + 1; ++expert) {
      end += begin_[expert];
      begin_[expert] = end;
    }
    for (std::int64_t slot = slots_; slot-- > 0;) {
      order_[--begin_[expert_of(slot)]] = static_cast<std::int32_t>(slot);
    }
  }
  [[nodiscard]] std::int64_t slots() const { return slots_; }
  [[nodiscard]] std::int64_t experts() const { return experts_; }
  [[nodiscard]] std::int64_t empty() const { return count(experts_); }
  [[nodiscard]] const std::int32_t* empty_rows() const { return rows(experts_); }
  [[nodiscard]] std::int64_t count(std::int64_t expert) const {
    return begin_[expert + 1] - begin_[expert];
  }
  [[nodiscard]] const std::int32_t* rows(std::int64_t expert) const {
    return order_ + begin_[expert];
  }

 private:
  [[nodiscard]] std::int64_t expert_of(std::int64_t slot) const {
    return choice_[slot] < 0 ? experts_ : choice_[slot];
  }

  const std::int32_t* choice_;
  std::int64_t slots_;
  std::int64_t experts_;
  std::int32_t* order_;
  std::int64_t* begin_;  ///< of each expert in `order_`, and the end
};

/// Rows of all slots times the matrix of each one's expert: y = x w^T, or dx = dy w. The row of an
/// empty slot is zero.
Prepared prepare_rows(const KernelCall& call, bool transposed, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  const View& x = call.inputs[0];
  const Shape& weight = call.inputs[1].shape;
  SW_CHECK(weight.size() == 3 && elements(weight) > 0, "{} by {}", call.op, to_text(weight));
  const std::int64_t inputs = transposed ? weight[2] : weight[1];
  const std::int64_t outputs = transposed ? weight[1] : weight[2];
  const SlotsOfExperts slots(call, call.inputs[2], weight[0], scratch);
  SW_CHECK(elements(x.shape) == slots.slots() * inputs &&
               elements(call.outputs[0].shape) == slots.slots() * outputs,
           "{}: {} by {} into {}", call.op, to_text(x.shape), to_text(weight),
           to_text(call.outputs[0].shape));
  const bool add = accumulates(call, 0);
  const View& y = call.outputs[0];
  const Product product({.m = slots.slots(), .n = outputs, .k = inputs, .b_transposed = transposed},
                        x, call.inputs[1], y, add, scratch, threads, Listed::M);
  return [slots, product, add, y, outputs](Team& team) {
    slots.sort();
    for_tiles(team, add ? 0 : slots.empty(),
              [&](std::int64_t i, int) { fill_zero(y, slots.empty_rows()[i] * outputs, outputs); });
    for (std::int64_t expert = 0; expert < slots.experts(); ++expert) {
      if (slots.count(expert) == 0) continue;
      product.of(slots.rows(expert), slots.count(expert), expert).run(team);
    }
  };
}

Prepared prepare_expert_product(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_rows(call, true, scratch, threads);
}

Prepared prepare_expert_product_grad_input(const KernelCall& call, Scratch& scratch, int threads) {
  return prepare_rows(call, false, scratch, threads);
}

/// dw = dy^T x over the slots of each expert, in their order.
Prepared prepare_expert_product_grad_weight(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  const View& x = call.inputs[0];
  const View& dy = call.inputs[2];
  const View& dw = call.outputs[0];
  SW_CHECK(dw.shape.size() == 3 && elements(dw.shape) > 0, "{} into {}", call.op,
           to_text(dw.shape));
  const SlotsOfExperts slots(call, call.inputs[1], dw.shape[0], scratch);
  SW_CHECK(elements(x.shape) == slots.slots() * dw.shape[2] &&
               elements(dy.shape) == slots.slots() * dw.shape[1],
           "{}: {} and {} into {}", call.op, to_text(x.shape), to_text(dy.shape),
           to_text(dw.shape));
  const bool add = accumulates(call, 0);
  const Product product(
      {.m = dw.shape[1], .n = dw.shape[2], .k = slots.slots(), .a_transposed = true}, dy, x, dw,
      add, scratch, threads, Listed::K);
  return [slots, product, add, dw](Team& team) {
    slots.sort();
    const Rows rows = rows_of(dw.shape);
    const std::int64_t of_expert = rows.count / slots.experts();
    const std::int64_t tile_rows = rows_per_tile(rows.width);
    for (std::int64_t expert = 0; expert < slots.experts(); ++expert) {
      if (slots.count(expert) > 0) {
        product.of(slots.rows(expert), slots.count(expert), expert).run(team);
      } else if (!add) {
        for_tiles(team, tiles_of(of_expert, tile_rows), [&](std::int64_t tile, int) {
          const std::int64_t first = tile * tile_rows;
          fill_zero(dw, (expert * of_expert + first) * rows.width,
                    std::min(tile_rows, of_expert - first) * rows.width);
        });
      }
    }
  };
}

}  // namespace

std::vector<Operator> expert_product_operators() {
  return {{"expert_product", prepare_expert_product},
          {"expert_product_grad_input", prepare_expert_product_grad_input},
          {"expert_product_grad_weight", prepare_expert_product_grad_weight}};
}

}  // namespace sw::kernels::cpu
