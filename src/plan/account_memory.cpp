// Memory of model states. P, G, O: bytes of parameters, gradients, optimizer state.
// Source: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 3.1: mixed-precision Adam keeps
// 2 (parameters) + 2 (gradients) + 12 (float32 copy, two moments) bytes per parameter.

#include <fmt/format.h>

#include <cmath>

#include "base/shape.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

constexpr double kAdamBytes = 16;

std::int64_t stage_of(const Inputs& in) {
  const std::int64_t stage = in.count("stage", 0);
  if (stage > 3) {
    in.reject(fmt::format("stage = {} is not a ZeRO level; there are 0, 1, 2 and 3", stage));
  }
  return stage;
}

struct States {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;

  [[nodiscard]] double total() const { return parameters + gradients + optimizer; }
  /// Resident on one of `ranks`; 1/ranks may be 0 for the limit.
  [[nodiscard]] double resident(std::int64_t stage, double share) const {
    return parameters * (stage >= 3 ? share : 1) + gradients * (stage >= 2 ? share : 1) +
           optimizer * (stage >= 1 ? share : 1);
  }
};

States states_of(const Inputs& in) {
  return {in.bytes("params"), in.bytes("grads"), in.bytes("optimizer")};
}

void resident(const Inputs& in, Outputs& out) {
  const States states = states_of(in);
  const std::int64_t stage = stage_of(in);
  const double bytes = states.resident(stage, 1 / static_cast<double>(in.count("ranks")));
  out.quantity("resident", bytes, in.unit({"params", "grads", "optimizer"}, "B"));
  out.note(
      "activations, communication buffers and gathered parameters come on top: this is not a "
      "peak");
}

void reduction(const Inputs& in, Outputs& out) {
  const States states = states_of(in);
  const std::int64_t stage = stage_of(in);
  for (const int ranks : {4, 64}) {
    out.set(fmt::format("reduction_n{}", ranks),
            plain(states.total() / states.resident(stage, 1.0 / ranks)), "x");
  }
  if (stage == 3) {
    out.note("stage 3 has no limit: the reduction is the number of ranks");
  } else {
    out.set("reduction_limit", plain(states.total() / states.resident(stage, 0)), "x");
    out.note("the limit is for many ranks");
  }
}

void reduction_of_stage_3(const Inputs& in, Outputs& out) {
  if (in.has("stage") && stage_of(in) != 3) {
    in.reject("the reduction of stages 0 to 2 needs params, grads and optimizer");
  }
  out.set("reduction", in.count("ranks"), "x");
  out.note("memory falls as 1/N");
}

void bytes_per_parameter(const Inputs& in, Outputs& out) {
  double bytes = 0;
  for (const char* part : {"weights", "grads", "master", "m", "v"}) {
    bytes += in.bytes(part);
  }
  out.quantity("bytes_per_param", bytes, in.unit({"weights"}, "B"));
  out.note("gradients kept in float32, as bfloat16 training often does, make 18 of 16");
}

void total(const Inputs& in, Outputs& out) {
  const double bytes = in.number("params") * in.bytes("bytes_per_param");
  out.quantity("total", bytes, "B");
  out.quantity("bytes", bytes, "B");
  out.set("exceeds_TB", plain(std::floor(bytes / 1e11) / 10), "TB");
}

void fits(const Inputs& in, Outputs& out) {
  const auto gpus = static_cast<double>(in.count("gpus"));
  const double needed = kAdamBytes * in.number("params");
  const double capacity = gpus * in.bytes("gpu_mem");
  const std::string unit = in.unit({"gpu_mem"}, "B");
  out.quantity("capacity", capacity, unit);
  out.quantity("needed", needed, unit);
  out.quantity("per_gpu_stage3", needed / gpus, unit);
  out.quantity("per_gpu_unsharded", needed, unit);
  out.set("fits_even_fully_sharded", needed <= capacity, "");
}

void fewest_gpus(const Inputs& in, Outputs& out) {
  const double memory = in.bytes("gpu_mem");
  if (memory <= 0) {
    in.reject("gpu_mem must be above 0");
  }
  out.set("gpus", plain(std::ceil(kAdamBytes * in.number("params") / memory)));
  out.note("a lower bound: model states alone, without activations");
}

void offloaded(const Inputs& in, Outputs& out) {
  const double params = in.number("params");
  const double weights = params * in.bytes("weight_bytes");
  const double left = in.bytes("gpu_mem") - weights;
  const std::string unit = in.unit({"gpu_mem"}, "B");
  if (left < 0) {
    in.reject(
        fmt::format("the weights take {} B and gpu_mem is {} B", weights, in.bytes("gpu_mem")));
  }
  out.quantity("weights_on_gpu", weights, unit);
  out.quantity("left_for_everything_else", left, unit);
  out.quantity("cpu_states", 14 * params, unit);
  out.set("cpu_note", "2 grad + 12 optimizer bytes per parameter on the host", "");
  out.note(
      "logits, one layer's activations, workspace and fragmentation share what is left: the "
      "weights alone do not say that it fits");
}

void stage_layers(const Inputs& in, Outputs& out) {
  const std::int64_t layers = in.count("layers");
  const std::int64_t stages = in.count("stages");
  if (stages > layers) {
    in.reject(fmt::format("{} stages are more than {} layers", stages, layers));
  }
  Json counts = Json::array();
  Json assignment = Json::array();
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const Range range = split(layers, stages, stage);
    Json numbers = Json::array();
    for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
      numbers.push_back(layer + 1);
    }
    counts.push_back(range.size());
    assignment.push_back(std::move(numbers));
  }
  out.set("layers_per_stage", counts, "layers");
  out.set("assignment", assignment, "layers");
  out.note("the first and last stage also carry the embedding and the head");
}

void resumable(const Inputs&, Outputs& out) {
  out.set("must_contain",
          {"parameters", "optimizer m and v", "fp32 master weights if separate", "lr scheduler",
           "gradient accumulation position", "RNG states", "data loader position"},
          "");
  out.note("what a checkpoint must hold to resume exactly");
}

}  // namespace

std::vector<Rule> memory_rules() {
  return {
      {"stage 0: P+G+O; 1: P+G+O/N; 2: P+(G+O)/N; 3: (P+G+O)/N",
       {"params", "grads", "optimizer", "ranks", "stage"},
       {},
       {},
       resident},
      {"reduction = (P+G+O)/resident; its limit for many ranks",
       {"params", "grads", "optimizer", "stage"},
       {},
       {"ranks"},
       reduction},
      {"reduction of stage 3 = N",
       {"ranks"},
       {"stage"},
       {"params", "grads", "optimizer", "message"},
       reduction_of_stage_3},
      {"weights + grads + master + m + v",
       {"weights", "grads", "master", "m", "v"},
       {},
       {},
       bytes_per_parameter},
      {"params * bytes_per_param", {"params", "bytes_per_param"}, {}, {}, total},
      {"16*params <= gpus*gpu_mem", {"params", "gpus", "gpu_mem"}, {}, {}, fits},
      {"ceil(16*params/gpu_mem)", {"params", "gpu_mem"}, {}, {"gpus", "weight_bytes"}, fewest_gpus},
      {"weights = weight_bytes*params on the GPU, 14*params on the host",
       {"params", "weight_bytes", "gpu_mem"},
       {},
       {"gpus"},
       offloaded},
      {"layers/stages, contiguous", {"layers", "stages"}, {}, {}, stage_layers},
      {"a checkpoint to resume from", {}, {}, {}, resumable},
  };
}

}  // namespace sw::accounts
