// Bytes of the ZeRO levels. One phase (a reduce-scatter or an all-gather) of S bytes over P ranks
// sends (P-1)/P*S per rank; an all-reduce is two phases.
// Source: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 7.

#include <fmt/format.h>

#include "base/shape.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

/// Sent by the rank that sends most: everything but the smallest part.
double phase(std::int64_t bytes, std::int64_t ranks) {
  return static_cast<double>(bytes - split(bytes, ranks, ranks - 1).size());
}

void one_phase(const Inputs& in, Outputs& out) {
  out.quantity("sent_per_rank", phase(in.whole_bytes("message"), in.count("ranks")),
               in.unit({"message"}, "B"));
}

struct Part {
  const char* name;
  double bytes;
};

/// What the collectives of one update send, per level.
std::vector<Part> parts_of(const Inputs& in, std::int64_t stage) {
  const std::int64_t ranks = in.count("ranks");
  const auto micro_batches = static_cast<double>(in.count_or("grad_accum", 1));
  const double parameters = phase(in.whole_bytes("params"), ranks);
  const double gradients = in.has("grads") ? phase(in.whole_bytes("grads"), ranks) : parameters;
  const double reduced = in.flag("reduce_every_microbatch", stage >= 2) ? micro_batches : 1;
  if (stage == 0) {
    return {{"all_reduce_grads", 2 * gradients * reduced}};
  }
  std::vector<Part> parts;
  if (stage < 3) {
    return {{"reduce_scatter_grads", gradients * reduced}, {"all_gather_params", parameters}};
  }
  parts.push_back({"all_gather_params_fwd", parameters * micro_batches});
  if (in.flag("reshard_after_forward", true)) {
    parts.push_back({"all_gather_params_bwd", parameters * micro_batches});
  }
  parts.push_back({"reduce_scatter_grads", gradients * reduced});
  return parts;
}

void update(const Inputs& in, Outputs& out) {
  const std::int64_t stage = in.has("stage") ? in.count("stage", 0) : 3;
  if (stage > 3) {
    in.reject(fmt::format("stage = {} is not a ZeRO level; there are 0, 1, 2 and 3", stage));
  }
  if (!in.has("stage")) {
    out.note("stage = 3 is assumed");
  }
  if (const std::string recompute = in.word("recompute", "none");
      recompute != "none" && recompute != "full" && recompute != "selective") {
    in.reject(fmt::format("recompute = \"{}\" is none of none, selective, full", recompute));
  }
  const std::string unit = in.unit({"params", "grads"}, "B");
  double total = 0;
  Json parts = Json::object();
  for (const Part& part : parts_of(in, stage)) {
    out.quantity(part.name, part.bytes, unit);
    parts[part.name] = plain(part.bytes / unit_factor(unit));
    total += part.bytes;
  }
  out.set("parts", parts, unit);
  out.quantity("total_sent_per_rank", total, unit);
  if (stage == 1 || stage == 2) {
    out.note(
        "the all-gather is of updated parameters and takes the place of the all-reduce's "
        "second phase: the same bytes as stage 0");
  }
  if (stage == 3) {
    out.note("the backward gathers parameters a second time; gradients are never gathered");
  }
}

void ratio(const Inputs&, Outputs& out) {
  out.set("ratio", 1.5, "x");
  out.note(
      "ZeRO-3 over DDP: three phases (two gathers of parameters, one reduce-scatter of "
      "gradients) against two");
}

void collectives(const Inputs& in, Outputs& out) {
  const std::int64_t layers = in.count("layers");
  const std::int64_t gathers = in.flag("reshard_after_forward", true) ? 2 * layers : layers;
  out.set("all_gather", gathers);
  out.set("reduce_scatter", layers);
  out.set("total", gathers + layers);
  out.note(
      "of one micro-batch; the last layer's gather for the backward can be left out, and "
      "units of several layers divide the counts");
}

}  // namespace

std::vector<Rule> zero_rules() {
  return {
      {"one phase sends S*(P-1)/P", {"message", "ranks"}, {}, {}, one_phase},
      {"0: all-reduce G; 1, 2: reduce-scatter G + all-gather P; 3: all-gather P in forward and "
       "again in backward + reduce-scatter G; gathers and, if asked, reductions per micro-batch",
       {"params", "ranks"},
       {"grads", "stage", "grad_accum", "recompute", "reshard_after_forward",
        "reduce_every_microbatch"},
       {"optimizer"},
       update},
      {"3 phases / 2 phases", {}, {}, {}, ratio},
      {"gather forward L + gather backward L + reduce-scatter L",
       {"layers"},
       {"reshard_after_forward"},
       {"stages"},
       collectives},
  };
}

}  // namespace sw::accounts
