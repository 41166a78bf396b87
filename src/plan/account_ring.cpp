// Ring collectives and what they do to scaling. P ranks, S bytes of the whole message.
// Source of the ring: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms".

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/shape.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

/// Exact bytes of a ring all-reduce whose chunks are balanced: rank r sends every chunk but r + 1
/// while reducing and every chunk but r + 2 while gathering (indices around the ring).
struct RingBytes {
  std::int64_t largest_sent = 0;
  std::int64_t smallest_sent = 0;
  std::int64_t largest_sum = 0;  ///< sent + received by one rank
  std::int64_t all_ranks = 0;
};

RingBytes ring_bytes(std::int64_t message, std::int64_t ranks) {
  const auto chunk = [&](std::int64_t i) {
    return split(message, ranks, (i + ranks) % ranks).size();
  };
  const auto sent = [&](std::int64_t r) { return 2 * message - chunk(r + 1) - chunk(r + 2); };
  RingBytes bytes;
  bytes.smallest_sent = sent(0);
  for (std::int64_t r = 0; r < ranks; ++r) {
    bytes.largest_sent = std::max(bytes.largest_sent, sent(r));
    bytes.smallest_sent = std::min(bytes.smallest_sent, sent(r));
    bytes.largest_sum = std::max(bytes.largest_sum, sent(r) + sent((r + ranks - 1) % ranks));
    bytes.all_ranks += sent(r);
  }
  return bytes;
}

void ring(const Inputs& in, Outputs& out) {
  const std::int64_t message = in.whole_bytes("message");
  const std::int64_t ranks = in.count("ranks");
  if (ranks > 1 << 24) {
    in.reject(fmt::format("ranks = {} is more than {}", ranks, 1 << 24));
  }
  const std::string unit = in.unit({"message"}, "B");
  const RingBytes bytes = ring_bytes(message, ranks);
  out.quantity("sent_per_rank", static_cast<double>(bytes.largest_sent), unit);
  out.quantity("received_per_rank", static_cast<double>(bytes.largest_sent), unit);
  out.quantity("sent_plus_received", static_cast<double>(bytes.largest_sum), unit);
  out.quantity("sent_all_ranks", static_cast<double>(bytes.all_ranks), unit);
  out.quantity("total_sent_all_ranks", static_cast<double>(bytes.all_ranks), unit);
  out.set("rounds", 2 * (ranks - 1));
  out.quantity("max_chunk", static_cast<double>(split(message, ranks, 0).size()), unit);
  if (message % ranks == 0) {
    const std::int64_t chunk = message / ranks;
    out.quantity("chunk", static_cast<double>(chunk), unit);
  } else {
    out.quantity("smallest_sent_per_rank", static_cast<double>(bytes.smallest_sent), unit);
    out.note(
        fmt::format("{} B do not divide by {}: chunks are {} and {} B, and sent_per_rank is "
                    "the largest over ranks, not the mean",
                    message, ranks, message / ranks, message / ranks + 1));
  }
  if (ranks > 2) {
    out.wrong("sent_per_rank",
              plain(static_cast<double>((ranks - 1) * message) / unit_factor(unit)), unit,
              "(P-1)*S is mailing the whole message to every peer");
  }
}

void ring_time(const Inputs& in, Outputs& out) {
  const double ranks = static_cast<double>(in.count("ranks"));
  const double seconds =
      2 * (ranks - 1) * in.seconds("alpha") +
      2 * (ranks - 1) / ranks * in.bytes("message") / in.bytes_per_second("bandwidth");
  out.quantity("time", seconds, in.unit({"alpha"}, "s"));
  out.note("reduction, contention, topology and chunk pipelining are left out");
}

void gradient_bytes(const Inputs& in, Outputs& out) {
  const double gradient = in.number("params") * in.bytes("grad_bytes");
  out.quantity("sent_per_rank_limit", 2 * gradient, "B");
  out.note(
      "the factor 2 is the two phases, reduce-scatter and all-gather; it is a limit for many "
      "ranks, reached by none");
  if (in.has("ranks")) {
    const double ranks = static_cast<double>(in.count("ranks"));
    out.quantity("sent_per_rank", 2 * (ranks - 1) / ranks * gradient, "B");
  }
}

/// What the scaling rules share; seconds and bytes.
struct Scaling {
  double gradient = 1e9;
  double bandwidth = 0;
  double alpha = 1e-5;
  double compute = 0.1;

  [[nodiscard]] double ring(double ranks) const {
    return 2 * (ranks - 1) * (gradient / ranks / bandwidth) + 2 * (ranks - 1) * alpha;
  }
};

Scaling scaling_inputs(const Inputs& in, std::string_view compute) {
  Scaling s;
  s.bandwidth = in.bytes_per_second("bandwidth");
  s.gradient = in.has("gradient") ? in.bytes("gradient") : s.gradient;
  s.alpha = in.has("alpha") ? in.seconds("alpha") : s.alpha;
  s.compute = in.has(compute) ? in.seconds(compute) : s.compute;
  return s;
}

void note_defaults(const Inputs& in, Outputs& out) {
  const std::pair<const char*, const char*> defaults[] = {
      {"gradient", "1 GB"}, {"alpha", "0.01 ms"}, {"compute", "100 ms"}};
  for (const auto& [name, value] : defaults) {
    if (!in.has(name)) {
      out.note(fmt::format("{} = {} is assumed", name, value));
    }
  }
}

void put_scaling(const Inputs& in, Outputs& out, double step, double single_compute, double speedup,
                 double ring) {
  const std::string unit = in.unit({"compute", "compute_single", "alpha"}, "ms");
  const double ranks = static_cast<double>(in.count("ranks"));
  out.quantity("ring", ring, unit);
  out.quantity("step", step, unit);
  out.set("speedup", plain(speedup), "x");
  out.set("efficiency", plain(100 * speedup / ranks), "%");
  out.set("bottleneck", ring > single_compute ? "comm" : "compute", "");
  out.set("slower_than_single", speedup < 1, "");
}

void weak_scaling(const Inputs& in, Outputs& out) {
  if (in.word("scaling", "weak") != "weak") {
    in.reject("scaling = \"strong\" needs compute_single, the time of the whole batch on one rank");
  }
  note_defaults(in, out);
  const Scaling s = scaling_inputs(in, "compute");
  const double ranks = static_cast<double>(in.count("ranks"));
  const double ring = s.ring(ranks);
  const bool overlap = in.flag("overlap", false);
  const double step = overlap ? std::max(s.compute, ring) : s.compute + ring;
  if (overlap) {
    out.note("step is the lower bound of perfect overlap");
  }
  put_scaling(in, out, step, s.compute, ranks * s.compute / step, ring);
}

void strong_scaling(const Inputs& in, Outputs& out) {
  if (in.word("scaling", "strong") != "strong") {
    in.reject("scaling = \"weak\" needs compute, the time of one rank's own batch");
  }
  const Scaling s = scaling_inputs(in, "compute_single");
  const double ranks = static_cast<double>(in.count("ranks"));
  const double step = s.compute / ranks + s.ring(ranks);
  put_scaling(in, out, step, s.compute / ranks, s.compute / step, s.ring(ranks));
}

void efficiency_limit(const Inputs& in, Outputs& out) {
  const Scaling s = scaling_inputs(in, "compute");
  out.set("efficiency", plain(100 * s.compute / (s.compute + 2 * s.gradient / s.bandwidth)), "%");
  out.note("the ceiling for many ranks, without latency");
}

void bandwidth_bound(const Inputs& in, Outputs& out) {
  const Scaling s = scaling_inputs(in, "compute");
  const double limit = 2 * s.gradient / s.bandwidth;
  out.quantity("limit", limit, in.unit({"alpha"}, "ms"));
  out.set("ring_n8_below_limit", s.ring(8) < limit, "");
  out.set("ring_n512_above_limit", s.ring(512) > limit, "");
  if (s.alpha > 0) {
    // ring(N) > limit exactly when N (N - 1) alpha > G / B.
    const double ratio = s.gradient / s.bandwidth / s.alpha;
    double n = std::max(1.0, std::floor(std::sqrt(ratio)) - 1);
    while (n * (n - 1) <= ratio) {
      ++n;
    }
    out.set("first_n_above_limit", plain(n), "ranks");
  }
  out.note("2G/B bounds the bandwidth term, not the ring: latency grows with the ranks");
}

void communication_share(const Inputs& in, Outputs& out) {
  const double step = in.seconds("step");
  if (step <= 0) {
    in.reject("step must be above 0");
  }
  out.set("share", plain(100 * in.seconds("ring") / step), "%");
}

void efficiency(const Inputs& in, Outputs& out) {
  const double ranks = static_cast<double>(in.count("ranks"));
  out.set("efficiency", plain(100 * in.number("speedup") / ranks), "%");
}

void relative_efficiency(const Inputs& in, Outputs& out) {
  out.set("relative_efficiency", plain(100 * in.number("ratio") / 2), "%");
}

}  // namespace

std::vector<Rule> ring_rules() {
  return {
      {"sent = received = 2*(P-1)/P*S; rounds = 2*(P-1); chunk = S/P; all ranks 2*(P-1)*S",
       {"message", "ranks"},
       {},
       {},
       ring},
      {"t = 2(P-1)*alpha + 2(P-1)/P*S/B",
       {"message", "ranks", "alpha", "bandwidth"},
       {},
       {},
       ring_time},
      {"sent_per_rank = 2*(P-1)/P * params*grad_bytes; its limit is 2 * params*grad_bytes",
       {"params", "grad_bytes"},
       {"ranks"},
       {},
       gradient_bytes},
  };
}

std::vector<Rule> scaling_rules() {
  return {
      {"ring = 2(N-1)(G/N/B) + 2(N-1)*alpha; step = compute + ring; speedup = N*compute/step; "
       "efficiency = speedup/N",
       {"ranks", "bandwidth"},
       {"gradient", "alpha", "compute", "overlap", "scaling"},
       {"message", "compute_single", "speedup"},
       weak_scaling},
      {"step = compute_single/N + ring; speedup = compute_single/step",
       {"compute_single", "ranks", "bandwidth", "gradient"},
       {"alpha", "scaling"},
       {},
       strong_scaling},
      {"efficiency -> compute / (compute + 2G/B)",
       {"gradient", "bandwidth", "compute"},
       {},
       {"ranks"},
       efficiency_limit},
      {"limit = 2G/B; ring(N) > limit from N(N-1) > G/(B*alpha)",
       {"gradient", "bandwidth", "alpha"},
       {},
       {"ranks"},
       bandwidth_bound},
      {"share = ring/step", {"ring", "step"}, {}, {}, communication_share},
      {"efficiency = speedup/N", {"speedup", "ranks"}, {}, {"bandwidth"}, efficiency},
      {"relative efficiency of twice the ranks = ratio/2", {"ratio"}, {}, {}, relative_efficiency},
  };
}

}  // namespace sw::accounts
