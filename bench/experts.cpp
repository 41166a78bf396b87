// experts_bench [ROUNDS]: products by experts beside plain products of as many rows with one
// matrix; prints a Markdown table. The two alternate within a round and a cell is the median over
// rounds of plain time / time by experts, in per cent.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bench/peak.hpp"
#include "device/arena.hpp"
#include "kernels/kernel.hpp"

namespace sw::bench {
namespace {

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kChosen = 2;
constexpr std::int64_t kSlots = kTokens * kChosen;
constexpr std::int64_t kExperts = 8;

/// Which expert a slot goes to.
struct Routing {
  std::string name;
  std::function<std::int64_t(std::int64_t slot)> expert;
};

std::int64_t drawn(std::int64_t slot, std::int64_t most) {
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(slot + 1) * 2654435761U >> 8) % most;
}

const std::vector<Routing> kRoutings = {
    {"drawn", [](std::int64_t slot) { return drawn(slot, kExperts); }},
    {"half to one", [](std::int64_t s) { return s % 2 == 0 ? 3 : drawn(s / 2, kExperts); }},
    {"all to one", [](std::int64_t) { return 3; }}};

struct Tensor {
  Tensor(Shape sizes, DType dtype)
      : shape(std::move(sizes)), type(dtype), memory(elements(shape) * size_of(dtype)) {
    for (std::int64_t i = 0; i < elements(shape); ++i) {
      const float value = static_cast<float>(i * 2654435761U % 1024) / 1024 - 0.5F;
      if (type == DType::Float32) {
        reinterpret_cast<float*>(memory.data())[i] = value;
      } else {
        reinterpret_cast<BFloat16*>(memory.data())[i] = to_bfloat16(value);
      }
    }
  }
  [[nodiscard]] kernels::View view(const Shape& as) const { return {memory.data(), type, as}; }
  [[nodiscard]] kernels::View view() const { return view(shape); }
  Shape shape;
  DType type;
  Arena memory;
};

double seconds_of(const std::function<void()>& body) {
  const double begin = now_s();
  body();
  return now_s() - begin;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Direction {
  std::string name;
  kernels::KernelCall by_experts;
  kernels::KernelCall plain;
};

void measure(std::int64_t inputs, std::int64_t outputs, DType type, int rounds) {
  const Tensor x({kTokens, 1, kChosen, inputs}, type);
  const Tensor y({kTokens, 1, kChosen, outputs}, type);
  const Tensor w({kExperts, outputs, inputs}, type);
  Arena numbers(kSlots * 4);
  auto* choice = reinterpret_cast<std::int32_t*>(numbers.data());
  const kernels::View chosen{numbers.data(), DType::Int32, {kTokens, 1, kChosen}};
  const kernels::View rows_x = x.view({kSlots, inputs});
  const kernels::View rows_y = y.view({kSlots, outputs});
  const kernels::View matrix = w.view({outputs, inputs});
  const auto einsum = [](const char* spec) { return kernels::EinsumParameters{spec}; };
  const std::vector<Direction> directions = {
      {"forward",
       {"expert_product", {}, {x.view(), w.view(), chosen}, {y.view()}, {false}},
       {"einsum", einsum("ti,oi->to"), {rows_x, matrix}, {rows_y}, {false}}},
      {"input gradient",
       {"expert_product_grad_input", {}, {y.view(), w.view(), chosen}, {x.view()}, {false}},
       {"einsum", einsum("to,oi->ti"), {rows_y, matrix}, {rows_x}, {false}}},
      {"weight gradient",
       {"expert_product_grad_weight", {}, {x.view(), chosen, y.view()}, {w.view()}, {false}},
       {"einsum", einsum("to,ti->oi"), {rows_y, rows_x}, {matrix}, {false}}}};
  const Arena scratch(64 << 20);
  for (const Direction& direction : directions) {
    fmt::print("| {} to {}, {}, {} |", inputs, outputs, to_text(type), direction.name);
    for (const int threads : {1, 2}) {
      Team team(threads);
      const auto bind = [&](const kernels::KernelCall& call) -> std::function<void()> {
        SW_CHECK(kernels::scratch_bytes(call, threads) <= scratch.size(), "scratch of {}", call.op);
        return [kernel = kernels::prepare(call, scratch.data(), threads), &team] { kernel(team); };
      };
      const auto by_experts = bind(direction.by_experts);
      const auto plain = bind(direction.plain);
      for (const Routing& routing : kRoutings) {
        for (std::int64_t slot = 0; slot < kSlots; ++slot) {
          choice[slot] = static_cast<std::int32_t>(routing.expert(slot));
        }
        by_experts();
        plain();
        std::vector<double> shares;
        for (int round = 0; round < rounds; ++round) {
          const double of_plain = seconds_of(plain);
          shares.push_back(100 * of_plain / seconds_of(by_experts));
        }
        fmt::print(" {:.0f} |", median(shares));
        std::fflush(stdout);
      }
    }
    fmt::print("\n");
  }
}

void run(int rounds) {
  fmt::print("| {} slots, {} experts |", kSlots, kExperts);
  for (const int threads : {1, 2}) {
    for (const Routing& routing : kRoutings) {
      fmt::print(" {}, {} thread{} |", routing.name, threads, threads == 1 ? "" : "s");
    }
  }
  fmt::print("\n|---|---|---|---|---|---|---|\n");
  for (const DType type : {DType::Float32, DType::BFloat16}) {
    measure(512, 1408, type, rounds);
    measure(1408, 512, type, rounds);
  }
}

}  // namespace
}  // namespace sw::bench

int main(int argc, char** argv) { sw::bench::run(argc > 1 ? std::atoi(argv[1]) : 15); }
