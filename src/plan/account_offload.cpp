// State on the host: gradients go out over a link, updated parameters come back.
// Source: Ren et al. 2021 (ZeRO-Offload), arXiv:2101.06840, section 3: the optimizer on the host
// sends and receives the least of all cuts, gradients out and parameters in.

#include <algorithm>

#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

void serial_transfer(const Inputs& in, Outputs& out) {
  const double bandwidth = in.bytes_per_second("bandwidth_each_way");
  if (bandwidth <= 0) {
    in.reject("bandwidth_each_way must be above 0");
  }
  out.quantity("transfer", (in.bytes("grads") + in.bytes("params")) / bandwidth, "s");
  out.note("the update on the host comes on top; parameters cannot leave before it");
}

void step_bounds(const Inputs& in, Outputs& out) {
  const double compute = in.seconds("compute");
  const double transfer = in.seconds("transfer");
  const std::string unit = in.unit({"compute", "transfer"}, "s");
  out.quantity("lower", std::max(compute, transfer), unit);
  out.quantity("upper", compute + transfer, unit);
  out.note(
      "lower: all of the shorter is hidden behind the longer; upper: nothing is. plan says what "
      "this program's order of instructions reaches");
}

}  // namespace

std::vector<Rule> offload_rules() {
  return {
      {"transfer = grads/bandwidth_each_way + params/bandwidth_each_way",
       {"grads", "params", "bandwidth_each_way"},
       {},
       {},
       serial_transfer},
      {"max(compute, transfer) <= step <= compute + transfer",
       {"compute", "transfer"},
       {},
       {},
       step_bounds},
  };
}

}  // namespace sw::accounts
