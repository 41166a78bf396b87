// Updates whose gradient was taken at older parameters. A version is counted by updates: version k
// is w after k of them, and a gradient of staleness d in update k was taken at version k - d.
// Source: Narayanan et al. 2019 (PipeDream), SOSP, section 3.3; 2BW: Narayanan et al. 2021,
// arXiv:2006.09503, section 3.1.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

constexpr std::int64_t kMostListed = 4096;  ///< updates and stages

double any_number(const Inputs& in, std::string_view name) {
  const Json& value = in.raw(name);
  if (!value.is_number()) {
    in.reject(fmt::format("{} = {} is not a number, as in {}=-1.5", name, value.dump(), name));
  }
  return value.get<double>();
}

std::int64_t listed(const Inputs& in, std::string_view name, std::int64_t minimum) {
  const std::int64_t count = in.count(name, minimum);
  if (count > kMostListed) {
    in.reject(
        fmt::format("{} = {} is more than {}, the most that are listed", name, count, kMostListed));
  }
  return count;
}

/// SGD on w^2/2, whose gradient is w. It settles exactly when lr < 2 sin(pi / (2 (2 d + 1))).
/// Source of the bound: Levin and May 1976, "A note on difference-delay equations", Theoretical
/// Population Biology 9.
void delayed_descent(const Inputs& in, Outputs& out) {
  const double rate = in.number("lr");
  const std::int64_t delay = in.has("staleness") ? listed(in, "staleness", 0) : 0;
  const std::int64_t steps = in.has("steps") ? listed(in, "steps", 1) : delay + 1;
  std::vector<double> weights = {any_number(in, "w0")};
  std::vector<std::int64_t> versions;
  for (std::int64_t step = 0; step < steps; ++step) {
    versions.push_back(std::max<std::int64_t>(0, step - delay));
    weights.push_back(weights.back() - rate * weights[static_cast<std::size_t>(versions.back())]);
  }
  Json trajectory = Json::array();
  for (const double weight : weights) {
    trajectory.push_back(plain(weight));
  }
  const double limit = 2 * std::sin(std::numbers::pi / static_cast<double>(2 * (2 * delay + 1)));
  out.set("trajectory", trajectory);
  out.set("gradient_version", versions, "versions");
  out.set("lr_limit", plain(limit));
  if (!in.has("steps")) {
    out.note(fmt::format("steps = {} is assumed: up to the first gradient that is {} old", steps,
                         delay));
  }
  if (delay > 0) {
    out.note(
        "the first updates have version 0 only; where a trajectory ends says nothing about "
        "staleness, the versions do");
  }
  if (rate >= limit) {
    out.note(fmt::format("lr = {} is not below lr_limit = {}: it does not settle", rate, limit));
  }
}

void two_layers(const Inputs& in, Outputs& out) {
  const double y = any_number(in, "b") * any_number(in, "a") * any_number(in, "x");
  out.set("y", plain(y));
  out.set("loss", plain(y * y / 2));
}

void stashed_gradient(const Inputs& in, Outputs& out) {
  const double x = any_number(in, "x");
  const double forward = any_number(in, "b_forward");
  const double backward = any_number(in, "b_backward");
  const double y = forward * any_number(in, "a") * x;
  out.set("grad_a", plain(y * forward * x));
  out.note("the backward reads the version that the forward read, which is kept (stashed) for it");
  if (y * backward * x != y * forward * x) {
    out.wrong("grad_a", plain(y * backward * x), "1",
              "an old activation with a new weight is the gradient at no version");
  }
}

void pipeline_versions(const Inputs& in, Outputs& out) {
  const std::int64_t stages = listed(in, "stages", 1);
  std::vector<std::int64_t> staleness;
  std::vector<std::int64_t> kept;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    staleness.push_back(stages - 1 - stage);
    kept.push_back(stages - stage);
  }
  out.set("pipedream_staleness", staleness, "versions");
  out.set("pipedream_kept", kept, "versions");
  out.set("pipedream_2bw_staleness", stages > 1 ? 1 : 0, "versions");
  out.set("pipedream_2bw_kept", stages > 1 ? 2 : 1, "versions");
  out.note("neither equals synchronous training; gpipe and 1f1b with a flush have staleness 0");
}

}  // namespace

std::vector<Rule> staleness_rules() {
  return {
      {"w[k+1] = w[k] - lr * w[max(0, k - staleness)]; it settles when lr < 2 sin(pi / (2 (2 "
       "staleness + 1)))",
       {"w0", "lr"},
       {"steps", "staleness"},
       {},
       delayed_descent},
      {"y = b*a*x; loss = y^2/2", {"x", "a", "b"}, {}, {"b_forward", "b_backward"}, two_layers},
      {"dL/da = y*b*x with the b of the forward, y = b_forward*a*x",
       {"x", "a", "b_forward", "b_backward"},
       {},
       {},
       stashed_gradient},
      {"stage s of P: pipedream is P - 1 - s versions behind and keeps P - s; 2bw is 1 behind and "
       "keeps 2",
       {"stages"},
       {},
       {},
       pipeline_versions},
  };
}

}  // namespace sw::accounts
