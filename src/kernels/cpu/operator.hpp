#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "kernels/kernel.hpp"

/// How a CPU kernel is written: one function that checks a call, takes its scratch, and returns
/// what to run every step.
namespace sw::kernels::cpu {

/// Hands out scratch. Without a base it only counts, so that what is planned and what is used are
/// one function; the pointers are then not to be used.
class Scratch {
 public:
  explicit Scratch(std::byte* base) : base_(base) {}

  template <typename T>
  [[nodiscard]] T* take(std::int64_t count) {
    std::byte* begin = base_ == nullptr ? nullptr : base_ + used_;
    used_ = round_up(used_ + count * static_cast<std::int64_t>(sizeof(T)), kAlignment);
    return reinterpret_cast<T*>(begin);
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  static constexpr std::int64_t kAlignment = 64;  // a cache line: threads do not share one
  std::byte* base_;
  std::int64_t used_ = 0;
};

struct Operator {
  std::string_view name;
  Prepared (*prepare)(const KernelCall& call, Scratch& scratch, int threads);
};

/// The operators of one file each.
[[nodiscard]] std::vector<Operator> einsum_operators();
[[nodiscard]] std::vector<Operator> elementwise_operators();
[[nodiscard]] std::vector<Operator> bias_operators();
[[nodiscard]] std::vector<Operator> dropout_operators();
[[nodiscard]] std::vector<Operator> norm_operators();
[[nodiscard]] std::vector<Operator> rope_operators();
[[nodiscard]] std::vector<Operator> attention_operators();
[[nodiscard]] std::vector<Operator> attention_grad_operators();
[[nodiscard]] std::vector<Operator> embedding_operators();
[[nodiscard]] std::vector<Operator> loss_operators();
[[nodiscard]] std::vector<Operator> route_operators();
[[nodiscard]] std::vector<Operator> slot_operators();
[[nodiscard]] std::vector<Operator> expert_product_operators();
[[nodiscard]] std::vector<Operator> balance_operators();

/// Runs body(tile, thread) over a team without the allocation that a std::function of a larger
/// lambda costs.
template <typename Body>
void for_tiles(Team& team, std::int64_t tiles, const Body& body) {
  team.run(tiles, std::cref(body));
}

}  // namespace sw::kernels::cpu
