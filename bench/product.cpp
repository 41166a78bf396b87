// product_bench [ROUNDS] [FILTER]: our matrix product beside oneDNN's, on the products of a
// training step; prints a Markdown table. Rivals alternate within a round, the multiply-add peak is
// measured in every round, and a cell is the median over rounds of the share of that round's peak.
#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "bench/peak.hpp"
#include "device/arena.hpp"
#include "kernels/kernel.hpp"

namespace sw::bench {
namespace {

/// y[T,N] = x[T,K] w[N,K]^T, and its gradients.
struct Layer {
  std::string name;
  std::int64_t tokens;
  std::int64_t inputs;
  std::int64_t outputs;
};

const std::vector<Layer> kLayers = {
    {"GPT-2 query, key, value", 2048, 768, 2304},
    {"GPT-2 projection", 2048, 768, 768},
    {"GPT-2 up", 2048, 768, 3072},
    {"GPT-2 down", 2048, 3072, 768},
    {"GPT-2 head", 2048, 768, 50257},
    {"384 query, key, value", 4096, 384, 1152},
    {"384 projection", 4096, 384, 384},
    {"384 up", 4096, 384, 1536},
    {"384 down", 4096, 1536, 384},
    {"384 head", 4096, 384, 50257},
};

struct Direction {
  std::string name;
  std::string spec;
  char x, y, z;  ///< operands and the result: (x)[T,K], (w)[N,K], (y)[T,N]
};
const std::vector<Direction> kDirections = {{"forward", "td,nd->tn", 'x', 'w', 'y'},
                                            {"input gradient", "tn,nd->td", 'y', 'w', 'x'},
                                            {"weight gradient", "tn,td->nd", 'y', 'x', 'w'}};

struct Tensors {
  explicit Tensors(const Layer& layer, DType dtype)
      : x_shape{layer.tokens, layer.inputs},
        w_shape{layer.outputs, layer.inputs},
        y_shape{layer.tokens, layer.outputs},
        x(elements(x_shape) * size_of(dtype)),
        w(elements(w_shape) * size_of(dtype)),
        y(elements(y_shape) * size_of(dtype)),
        type(dtype) {
    fill(x, elements(x_shape));
    fill(w, elements(w_shape));
    fill(y, elements(y_shape));
  }
  void fill(const Arena& memory, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(i * 2654435761U % 1024) / 1024 - 0.5F;
      if (type == DType::Float32) {
        reinterpret_cast<float*>(memory.data())[i] = value;
      } else {
        reinterpret_cast<BFloat16*>(memory.data())[i] = to_bfloat16(value);
      }
    }
  }
  [[nodiscard]] kernels::View view(char name) const {
    return name == 'x'   ? kernels::View{x.data(), type, x_shape}
           : name == 'w' ? kernels::View{w.data(), type, w_shape}
                         : kernels::View{y.data(), type, y_shape};
  }
  Shape x_shape;
  Shape w_shape;
  Shape y_shape;
  Arena x;
  Arena w;
  Arena y;
  DType type;
};

/// After a rest: oneDNN's threads go on spinning for some milliseconds.
double seconds_of(const std::function<void()>& body) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double begin = now_s();
  body();
  return now_s() - begin;
}

std::function<void()> ours(const Tensors& tensors, const Direction& direction, Team& team,
                           const Arena& scratch) {
  const kernels::KernelCall call{.op = "einsum",
                                 .parameters = kernels::EinsumParameters{direction.spec},
                                 .inputs = {tensors.view(direction.x), tensors.view(direction.y)},
                                 .outputs = {tensors.view(direction.z)},
                                 .accumulate = {false}};
  return [kernel = kernels::prepare(call, scratch.data(), team.threads()), &team] { kernel(team); };
}

/// oneDNN's routine for the whole product with threads of its own.
std::function<void()> peer(const Layer& layer, const Tensors& tensors, const Direction& direction,
                           int threads) {
  const auto pointer = [&tensors](char name) {
    return reinterpret_cast<float*>(tensors.view(name).data);
  };
  const float* a = pointer(direction.x);
  const float* b = pointer(direction.y);
  float* c = pointer(direction.z);
  return [=] {
    omp_set_num_threads(threads);
    const auto& [name, t, k, n] = layer;
    dnnl_status_t status = dnnl_success;
    if (direction.z == 'y') status = dnnl_sgemm('N', 'T', t, n, k, 1, a, k, b, k, 0, c, n);
    if (direction.z == 'x') status = dnnl_sgemm('N', 'N', t, k, n, 1, a, n, b, k, 0, c, k);
    if (direction.z == 'w') status = dnnl_sgemm('T', 'N', n, k, t, 1, a, n, b, k, 0, c, k);
    SW_CHECK(status == dnnl_success, "oneDNN refused with status {}", static_cast<int>(status));
  };
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Layer& layer, const Direction& direction, int rounds) {
  const Tensors float32(layer, DType::Float32);
  const Tensors bfloat16(layer, DType::BFloat16);
  const Arena scratch(64 << 20);
  const double work = 2.0 * static_cast<double>(layer.tokens) * static_cast<double>(layer.inputs) *
                      static_cast<double>(layer.outputs);
  fmt::print("| {}, {} |", layer.name, direction.name);
  for (const int threads : {1, 2}) {
    Team team(threads);
    const std::function<void()> rivals[] = {ours(float32, direction, team, scratch),
                                            peer(layer, float32, direction, threads),
                                            ours(bfloat16, direction, team, scratch)};
    std::vector<double> shares[3];
    std::vector<double> ratios;
    for (const auto& rival : rivals) rival();
    for (int round = 0; round < rounds; ++round) {
      const double peak = multiply_add_peak(team);
      double seconds[3];
      for (int i = 0; i < 3; ++i) {
        seconds[i] = seconds_of(rivals[i]);
        shares[i].push_back(100 * work / seconds[i] / peak);
      }
      ratios.push_back(seconds[1] / seconds[0]);
    }
    fmt::print(" {:.0f} | {:.0f} | {:.2f} | {:.0f} |", median(shares[0]), median(shares[1]),
               median(ratios), median(shares[2]));
    std::fflush(stdout);
  }
  fmt::print("\n");
}

void run(int rounds, const std::string& filter) {
  fmt::print(
      "| product | float32, 1 thread | oneDNN | ratio | bfloat16 | float32, 2 threads | oneDNN | "
      "ratio | bfloat16 |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) {
    for (const Direction& direction : kDirections) {
      if ((layer.name + ", " + direction.name).find(filter) == std::string::npos) continue;
      measure(layer, direction, rounds);
    }
  }
}

}  // namespace
}  // namespace sw::bench

int main(int argc, char** argv) {
  sw::bench::run(argc > 1 ? std::atoi(argv[1]) : 7, argc > 2 ? argv[2] : "");
}
