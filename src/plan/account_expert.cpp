// Experts on ranks of ep: a token's activation goes to each remote expert that it chose (dispatch)
// and back (combine), both all-to-all.
// Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3; capacity: Fedus et al. 2021
// (Switch Transformer), arXiv:2101.03961, section 2.2, with top_k choices a token.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

double activation_bytes(const Inputs& in) {
  return static_cast<double>(in.count("h")) * in.bytes("act_bytes");
}

void put_both_ways(Outputs& out, double one_way) {
  out.quantity("bytes_forward", 2 * one_way, "B");
  out.quantity("bytes_forward_backward", 4 * one_way, "B");
}

void one_token(const Inputs& in, Outputs& out) {
  put_both_ways(out, static_cast<double>(in.count("remote_experts", 0)) * activation_bytes(in));
  out.note(
      "the share of experts that are active is not the share of bytes: tokens move, not "
      "weights");
}

void all_tokens(const Inputs& in, Outputs& out) {
  const auto ranks = static_cast<double>(in.count("ep"));
  const double rows = static_cast<double>(in.count("tokens")) *
                      static_cast<double>(in.count("top_k")) *
                      static_cast<double>(in.count_or("layers", 1));
  const double most = ranks > 1 ? rows * activation_bytes(in) : 0;
  const double even = most * (ranks - 1) / ranks;
  out.quantity("dispatch", even, "B");
  out.quantity("combine", even, "B");
  out.quantity("dispatch_if_all_remote", most, "B");
  put_both_ways(out, even);
  out.note(
      "sent by a rank of `tokens` tokens when every expert is chosen equally often and a copy goes "
      "to each; a real router lies between 0 and dispatch_if_all_remote");
}

/// Rows that an expert takes: of `rows` choices over `experts`, times the factor.
double capacity_of(const Inputs& in, double rows, double experts) {
  const double factor = in.number("capacity_factor");
  if (factor <= 0) {
    in.reject("capacity_factor = 0 drops every token; 1 is exactly enough for an even load");
  }
  const double mean = factor * rows / experts;
  const double whole = std::round(mean);  // 1.1 * 10 is a little more than 11 in binary
  return std::abs(mean - whole) <= 1e-12 * mean ? whole : std::ceil(mean);
}

void even_capacity(const Inputs& in, Outputs& out) {
  const std::int64_t experts = in.count("experts");
  const std::int64_t chosen = in.count("top_k");
  if (chosen > experts) {
    in.reject(fmt::format("top_k = {} is more than experts = {}", chosen, experts));
  }
  const double rows = static_cast<double>(in.count("tokens")) * static_cast<double>(chosen);
  const double capacity = capacity_of(in, rows, static_cast<double>(experts));
  out.set("capacity", plain(capacity), "tokens");
  out.set("slots", plain(capacity * static_cast<double>(experts)), "tokens");
}

std::vector<double> loads_of(const Inputs& in) {
  std::vector<double> loads = in.numbers("load");
  for (const double load : loads) {
    if (load < 0 || load != std::floor(load)) {
      in.reject(fmt::format("load = {} is not a count of tokens", load));
    }
  }
  if (std::ranges::all_of(loads, [](double load) { return load == 0; })) {
    in.reject("load is 0 on every expert; give the tokens that chose each, as in load=[3,1]");
  }
  return loads;
}

/// "expert_imbalance", or "rank_imbalance": the largest over the mean.
void put_imbalance(Outputs& out, std::string_view of, const std::vector<double>& loads) {
  double all = 0;
  for (const double load : loads) {
    all += load;
  }
  const auto hottest = std::ranges::max_element(loads);
  out.set(fmt::format("hottest_{}", of), hottest - loads.begin(), "");
  out.set(fmt::format("{}_imbalance", of),
          plain(*hottest / (all / static_cast<double>(loads.size()))), "x");
}

void expert_load(const Inputs& in, Outputs& out) {
  const std::vector<double> loads = loads_of(in);
  put_imbalance(out, "expert", loads);
  if (!in.has("ep")) {
    return;
  }
  const auto ranks = static_cast<std::size_t>(in.count("ep"));
  if (loads.size() % ranks != 0) {
    in.reject(fmt::format("ep = {} does not divide the {} experts of load", ranks, loads.size()));
  }
  std::vector<double> of_ranks(ranks, 0);
  for (std::size_t expert = 0; expert < loads.size(); ++expert) {
    of_ranks[expert / (loads.size() / ranks)] += loads[expert];
  }
  Json listed_loads = Json::array();
  for (const double load : of_ranks) {
    listed_loads.push_back(plain(load));
  }
  out.set("rank_load", listed_loads, "tokens");
  put_imbalance(out, "rank", of_ranks);
}

void dropped_tokens(const Inputs& in, Outputs& out) {
  const std::vector<double> loads = loads_of(in);
  double rows = 0;
  for (const double load : loads) {
    rows += load;
  }
  const double capacity = capacity_of(in, rows, static_cast<double>(loads.size()));
  double dropped = 0;
  for (const double load : loads) {
    dropped += std::max(0.0, load - capacity);
  }
  out.set("capacity", plain(capacity), "tokens");
  out.set("dropped", plain(dropped), "tokens");
  out.set("dropped_share", plain(100 * dropped / rows), "%");
  out.note("with a capacity the result depends on which ranks' tokens are counted together");
}

}  // namespace

std::vector<Rule> expert_rules() {
  return {
      {"one token: dispatch + combine = 2 * remote_experts*h*act_bytes; the backward the same",
       {"remote_experts", "h", "act_bytes"},
       {},
       {"tokens", "ep"},
       one_token},
      {"dispatch = combine = (ep-1)/ep * tokens*top_k*h*act_bytes a layer; the backward the same",
       {"tokens", "top_k", "h", "act_bytes", "ep"},
       {"layers"},
       {"load"},
       all_tokens},
      {"capacity = ceil(capacity_factor * tokens*top_k/experts)",
       {"tokens", "top_k", "experts", "capacity_factor"},
       {},
       {"load"},
       even_capacity},
      {"imbalance = largest load / mean load; rank r has experts r*E/ep to (r+1)*E/ep",
       {"load"},
       {"ep"},
       {"tokens"},
       expert_load},
      {"capacity = ceil(capacity_factor * mean load); dropped = sum of max(0, load - capacity)",
       {"load", "capacity_factor"},
       {},
       {"tokens"},
       dropped_tokens},
  };
}

}  // namespace sw::accounts
