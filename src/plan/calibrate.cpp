#include "plan/calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "kernels/kernel.hpp"

namespace sw {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of `body`, after one run that is not counted.
double median_seconds(int runs, const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const double start = now();
    body();
    seconds.push_back(now() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<std::size_t>(runs / 2)];
}

struct Tensor {
  explicit Tensor(Shape of)
      : shape(std::move(of)), values(static_cast<std::size_t>(elements(shape)), 0.5F) {}
  kernels::View view() {
    return {reinterpret_cast<std::byte*>(values.data()), DType::Float32, shape};
  }
  Shape shape;
  std::vector<float> values;
};

double seconds_of(const kernels::KernelCall& call, Team& team, int runs) {
  std::vector<std::byte> scratch(
      static_cast<std::size_t>(kernels::scratch_bytes(call, team.threads())) + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  const kernels::Prepared prepared =
      kernels::prepare(call, scratch.data() + (64 - address % 64) % 64, team.threads());
  return median_seconds(runs, [&] { prepared(team); });
}

double product_flops_per_s(Team& team, std::int64_t size) {
  Tensor a({1, size, size});
  Tensor b({size, size});
  Tensor c({1, size, size});
  const kernels::KernelCall call{"einsum",
                                 kernels::EinsumParameters{"bsd,fd->bsf"},
                                 {a.view(), b.view()},
                                 {c.view()},
                                 {false}};
  const double n = static_cast<double>(size);
  return 2 * n * n * n / seconds_of(call, team, 7);
}

double streaming_bytes_per_s(Team& team) {
  const std::int64_t count = std::int64_t{1} << 24;
  Tensor x({count});
  Tensor y({count});
  Tensor z({count});
  const kernels::KernelCall call{"add", {}, {x.view(), y.view()}, {z.view()}, {false}};
  return 3.0 * 4.0 * static_cast<double>(count) / seconds_of(call, team, 5);
}

/// Seconds of an all-gather of `bytes` over two ranks that are threads of this process.
double gather_seconds(std::int64_t bytes, int runs) {
  const auto worlds = make_local_worlds(2, {});
  double seconds = 0;
  const auto rank = [&](World& world) {
    const auto communicator = world.make_communicator("calibrate", {0, 1});
    std::vector<std::byte> whole(static_cast<std::size_t>(bytes));
    Collective collective;
    collective.kind = CollectiveKind::AllGather;
    collective.dtype = DType::UInt8;
    collective.segments = {{whole.data() + world.rank() * (bytes / 2), whole.data(), 1, bytes, 1}};
    const auto prepared = communicator->prepare(collective);
    const double median = median_seconds(runs, [&] { prepared->run(); });
    if (world.rank() == 0) {
      seconds = median;
    }
  };
  std::thread other([&] { rank(*worlds[1]); });
  rank(*worlds[0]);
  other.join();
  return seconds;
}

}  // namespace

Machine calibrate(int threads) {
  Team team(threads);
  Machine machine;
  char host[256] = "this machine";
  ::gethostname(host, sizeof(host) - 1);
  machine.name = fmt::format("{}, {} thread{} a rank", host, threads, threads == 1 ? "" : "s");
  machine.flops_per_s = product_flops_per_s(team, 384);
  machine.peak_flops_per_s = std::max(machine.flops_per_s, product_flops_per_s(team, 1024));
  machine.memory_bytes_per_s = streaming_bytes_per_s(team);
  machine.link_latency_s = gather_seconds(64, 201);
  const std::int64_t large = std::int64_t{1} << 24;
  machine.link_bytes_per_s = static_cast<double>(large) / 2 / gather_seconds(large, 9);
  Tensor tiny({1, 1, 8});
  Tensor weight({8});
  Tensor out({1, 1, 8});
  const kernels::KernelCall small{
      "rms_norm", kernels::NormParameters{}, {tiny.view(), weight.view()}, {out.view()}, {false}};
  machine.instruction_s = seconds_of(small, team, 101);
  return machine;
}

}  // namespace sw
