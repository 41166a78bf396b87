// attention_bench [ROUNDS]: causal attention, forward and backward; prints a Markdown table. A cell
// is the median over rounds of the share of that round's multiply-add peak, of the operations that
// a causal mask leaves: 4 forward and 10 backward for each query, key that it sees and element of a
// head.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bench/peak.hpp"
#include "device/arena.hpp"
#include "kernels/kernel.hpp"

namespace sw::bench {
namespace {

struct Size {
  std::string name;
  std::int64_t batch;
  std::int64_t sequence;
  std::int64_t heads;
};
const std::vector<Size> kSizes = {{"12 heads, 4 x 512", 4, 512, 12},
                                  {"6 heads, 16 x 256", 16, 256, 6},
                                  {"12 heads, 1 x 2048", 1, 2048, 12}};
constexpr std::int64_t kHead = 64;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The memory of one call, filled.
struct Tensors {
  Tensors(const Size& size, DType dtype)
      : shape{size.batch, size.sequence, size.heads, kHead},
        rows{size.batch, size.sequence},
        type(dtype) {
    const std::int64_t count = elements(shape);
    for (Arena& arena : floating) {
      arena = Arena(count * 4);
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(i * 2654435761U % 1024) / 512 - 1;
        if (type == DType::Float32) {
          reinterpret_cast<float*>(arena.data())[i] = value;
        } else {
          reinterpret_cast<BFloat16*>(arena.data())[i] = to_bfloat16(value);
        }
      }
    }
    statistics = Arena(count * 4);
    positions = Arena(elements(rows) * 4);
    documents = Arena(elements(rows) * 4);
    for (std::int64_t i = 0; i < elements(rows); ++i) {
      reinterpret_cast<std::int32_t*>(positions.data())[i] =
          static_cast<std::int32_t>(i % size.sequence);
      reinterpret_cast<std::int32_t*>(documents.data())[i] = 0;
    }
  }
  [[nodiscard]] kernels::View view(int index) const {
    return {floating[index].data(), type, shape};
  }
  [[nodiscard]] std::vector<kernels::View> inputs() const {
    const kernels::View at{positions.data(), DType::Int32, rows};
    const kernels::View of{documents.data(), DType::Int32, rows};
    return {view(0), view(1), view(2), at, at, of, of};
  }
  [[nodiscard]] kernels::View lse() const {
    return {statistics.data(), DType::Float32, {shape[0], shape[1], shape[2]}};
  }

  Shape shape;
  Shape rows;
  DType type;
  Arena floating[8];  ///< q, k, v, o, do, dq, dk, dv
  Arena statistics;
  Arena positions;
  Arena documents;
};

void measure(const Size& size, int threads, int rounds) {
  Team team(threads);
  const Arena scratch(64 << 20);
  const double sequence = static_cast<double>(size.sequence);
  const double seen = static_cast<double>(size.batch * size.heads) * sequence * (sequence + 1) / 2;
  fmt::print("| {}, {} thread(s) |", size.name, threads);
  for (const DType type : {DType::Float32, DType::BFloat16}) {
    const Tensors t(size, type);
    const kernels::Parameters parameters = kernels::AttentionParameters{.scale = 0.125};
    kernels::KernelCall forward{.op = "attention",
                                .parameters = parameters,
                                .inputs = t.inputs(),
                                .outputs = {t.view(3), t.lse()},
                                .accumulate = {}};
    kernels::KernelCall backward{.op = "attention_grad",
                                 .parameters = parameters,
                                 .inputs = t.inputs(),
                                 .outputs = {t.view(5), t.view(6), t.view(7)},
                                 .accumulate = {}};
    for (const kernels::View& view : {t.view(3), t.lse(), t.view(4)}) {
      backward.inputs.push_back(view);
    }
    const kernels::Prepared kernels[] = {kernels::prepare(forward, scratch.data(), threads),
                                         kernels::prepare(backward, scratch.data(), threads)};
    const double work[] = {4.0 * kHead * seen, 10.0 * kHead * seen};
    std::vector<double> shares[2];
    for (int round = -1; round < rounds; ++round) {
      const double peak = multiply_add_peak(team);
      for (int i = 0; i < 2; ++i) {
        const double begin = now_s();
        kernels[i](team);
        const double share = 100 * work[i] / (now_s() - begin) / peak;
        if (round >= 0) shares[i].push_back(share);
      }
    }
    fmt::print(" {:.0f} | {:.0f} |", median(shares[0]), median(shares[1]));
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace sw::bench

int main(int argc, char** argv) {
  fmt::print(
      "| attention | float32 forward | backward | bfloat16 forward | backward |\n"
      "|---|---|---|---|---|\n");
  for (const sw::bench::Size& size : sw::bench::kSizes) {
    for (const int threads : {1, 2}) {
      sw::bench::measure(size, threads, argc > 1 ? std::atoi(argv[1]) : 7);
    }
  }
}
