// The batch of an update and its loss.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

std::int64_t product_of(const Inputs& in) {
  const std::int64_t micro_batch = in.count("micro_batch");
  const std::int64_t grad_accum = in.count("grad_accum");
  const std::int64_t dp = in.count("dp");
  std::int64_t product = 0;
  if (__builtin_mul_overflow(micro_batch, grad_accum, &product) ||
      __builtin_mul_overflow(product, dp, &product)) {
    in.reject("micro_batch * grad_accum * dp does not fit in 63 bits");
  }
  return product;
}

void samples(const Inputs& in, Outputs& out) {
  const std::int64_t product = product_of(in);
  out.set("samples_per_update", product, "samples");
  out.note("tensor, context and pipeline ranks share samples and do not multiply the count");
  if (!in.has("world")) {
    return;
  }
  const std::int64_t world = in.count("world");
  const std::int64_t ranks =
      in.count("dp") * in.count_or("tp", 1) * in.count_or("pp", 1) * in.count_or("cp", 1);
  if (ranks != world) {
    in.reject(fmt::format("dp x tp x pp x cp = {} ranks, but world = {}", ranks, world));
  }
  if (const std::int64_t trap = product / in.count("dp") * world; trap != product) {
    out.wrong("samples_per_update", trap, "samples",
              "micro_batch * grad_accum * world counts ranks that share samples");
  }
}

void check(const Inputs& in, Outputs& out) {
  const std::int64_t wanted = in.count("train_batch_size");
  const std::int64_t product = product_of(in);
  out.set("accept", wanted == product, "");
  out.set("product", product, "samples");
  if (wanted == product) {
    return;
  }
  std::vector<std::string> repairs = {fmt::format("train_batch_size = {}", product)};
  for (const char* name : {"grad_accum", "micro_batch", "dp"}) {
    const std::int64_t others = product / in.count(name);
    if (wanted % others == 0) {
      repairs.push_back(fmt::format("{} = {}", name, wanted / others));
    }
  }
  in.reject(
      fmt::format("train_batch_size = {} is not micro_batch * grad_accum * dp = {} * {} * {} "
                  "= {}; set {}",
                  wanted, in.count("micro_batch"), in.count("grad_accum"), in.count("dp"), product,
                  fmt::join(repairs, ", or ")));
}

void micro_batches(const Inputs& in, Outputs& out) {
  const std::int64_t batch = in.count("batch");
  const std::int64_t parts = in.count("num_microbatches");
  if (batch % parts != 0) {
    in.reject(fmt::format("batch = {} does not divide into num_microbatches = {}", batch, parts));
  }
  out.set("micro_batch", batch / parts, "samples");
}

void loss_scale(const Inputs& in, Outputs& out) {
  const double fixed = in.number("loss_scale");
  const std::int64_t power = in.count("initial_scale_power", 0);
  if (power > 127) {
    in.reject(fmt::format("initial_scale_power = {} is beyond float32", power));
  }
  out.set("initial_loss_scale",
          plain(fixed == 0 ? std::ldexp(1.0, static_cast<int>(power)) : fixed));
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void token_mean(const Inputs& in, Outputs& out) {
  const std::vector<double> sums = in.numbers("loss_sums");
  const std::vector<double> counts = in.numbers("valid_tokens");
  if (sums.size() != counts.size()) {
    in.reject(fmt::format("{} loss_sums but {} valid_tokens", sums.size(), counts.size()));
  }
  for (const double count : counts) {
    if (count < 0 || count != std::floor(count)) {
      in.reject(fmt::format("valid_tokens = {} is not a count", count));
    }
  }
  const double tokens = sum(counts);
  if (tokens == 0) {
    in.reject("0 valid tokens in the window: the update is skipped and counted, never divided");
  }
  out.set("loss", plain(sum(sums) / tokens), "nats/token");
  double means = 0;
  for (std::size_t r = 0; r < sums.size(); ++r) {
    means += sums[r] / counts[r];
  }
  const double trap = means / static_cast<double>(sums.size());
  if (trap != sum(sums) / tokens) {
    out.wrong("loss", plain(trap), "nats/token",
              "the mean of per-rank means weighs ranks, not tokens");
  }
}

void local_objectives(const Inputs& in, Outputs& out) {
  const std::vector<double> sums = in.numbers("loss_sums");
  const auto tokens = static_cast<double>(in.count("global_tokens", 0));
  const auto world = static_cast<double>(in.count("world"));
  if (tokens == 0) {
    in.reject("0 valid tokens in the window: the update is skipped and counted, never divided");
  }
  if (static_cast<double>(sums.size()) != world) {
    in.reject(fmt::format("{} loss_sums but world = {}", sums.size(), world));
  }
  Json objectives = Json::array();
  for (const double value : sums) {
    objectives.push_back(world * value / tokens);
  }
  out.set("local_objectives", objectives, "nats/token");
  out.set("average", plain(sum(sums) / tokens), "nats/token");
  out.note("where the collective sums gradients instead of averaging them, leave out the factor W");
}

}  // namespace

std::vector<Rule> batch_rules() {
  return {
      {"samples_per_update = micro_batch * grad_accum * dp",
       {"micro_batch", "grad_accum", "dp"},
       {"tp", "pp", "cp", "world"},
       {"train_batch_size"},
       samples},
      {"train_batch_size == micro_batch * grad_accum * dp",
       {"train_batch_size", "micro_batch", "grad_accum", "dp"},
       {},
       {},
       check},
      {"micro_batch = batch / num_microbatches",
       {"batch", "num_microbatches"},
       {},
       {},
       micro_batches},
      {"2**initial_scale_power when loss_scale == 0 (dynamic)",
       {"initial_scale_power", "loss_scale"},
       {},
       {},
       loss_scale},
  };
}

std::vector<Rule> loss_rules() {
  return {
      {"loss = sum_r S_r / sum_r n_r", {"loss_sums", "valid_tokens"}, {}, {}, token_mean},
      {"L_r = W * S_r / T; their average is sum_r S_r / T",
       {"loss_sums", "global_tokens", "world"},
       {},
       {},
       local_objectives},
  };
}

}  // namespace sw::accounts
