#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/kernel.hpp"
#include "runtime/prepared_work.hpp"

namespace sw {
namespace {

struct GradientRange {
  kernels::Gradients gradients;
  std::int64_t count = 0;
};

kernels::Gradients gradients(const Program& program, const RankMemory& memory,
                             const Operand& operand) {
  return {memory.address(program, operand), operand.dtype};
}

Run finish_count(const std::int64_t* valid, float* count) {
  return [=](Team&) { *count = *valid > 0 ? static_cast<float>(*valid) : 1.0F; };
}

Run squares(std::vector<GradientRange> ranges, std::uint64_t* words) {
  return [=, ranges = std::move(ranges)](Team& team) {
    kernels::ExactSum sum;
    for (const GradientRange& range : ranges) {
      kernels::add_squares(team, range.gradients, range.count, sum);
    }
    std::memcpy(words, sum.words, sizeof sum.words);
  };
}

Run finish_norm(const std::uint64_t* words, const double* settings, const float* loss,
                double* verdict) {
  return [=](Team&) {
    kernels::ExactSum sum;
    std::memcpy(sum.words, words, sizeof sum.words);
    const double norm = std::sqrt(sum.value());
    const double clip = settings[1];
    verdict[0] = norm;
    verdict[1] = clip > 0 && norm > clip ? clip / norm : 1;
    const bool finite = std::isfinite(norm) && (loss == nullptr || std::isfinite(*loss));
    verdict[2] = finite && settings[2] > 0 ? 1 : 0;
  };
}

/// Up where fewer than the mean chose an expert, whole numbers compared.
Run move_bias(float rate, const double* verdict, const std::int64_t* load, const Shape& shape,
              float* bias) {
  return [=, layers = shape[0], experts = shape[1]](Team&) {
    if (verdict[2] == 0) return;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::int64_t* row = load + layer * experts;
      const std::int64_t all = std::accumulate(row, row + experts, std::int64_t{0});
      for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t missing = all - row[e] * experts;
        float& value = bias[layer * experts + e];
        if (missing != 0) value += missing > 0 ? rate : -rate;
      }
    }
  };
}

struct OptimizerRange {
  std::int64_t count = 0;
  kernels::Gradients gradient;
  float* master = nullptr;
  float* states[2] = {};
  BFloat16* rounded = nullptr;
  float weight_decay = 0;
};

std::vector<OptimizerRange> optimizer_ranges(const Program& program, const Instruction& instruction,
                                             const RankMemory& memory) {
  const auto& work = std::get<OptimizerWork>(instruction.work);
  std::vector<OptimizerRange> ranges;
  std::size_t output = 0;
  for (std::size_t i = 0; i < work.weight_decay.size(); ++i) {
    const Operand& gradient = instruction.inputs[i + 2];
    OptimizerRange range;
    range.count = gradient.shape[0];
    range.gradient = gradients(program, memory, gradient);
    range.master = pointer<float>(program, memory, instruction.outputs[output++]);
    for (int s = 0; s < work.states; ++s) {
      range.states[s] = pointer<float>(program, memory, instruction.outputs[output++]);
    }
    if (work.rounded) {
      range.rounded = pointer<BFloat16>(program, memory, instruction.outputs[output++]);
    }
    range.weight_decay = static_cast<float>(work.weight_decay[i]);
    ranges.push_back(range);
  }
  return ranges;
}

Run adamw(const OptimizerWork& work, const std::vector<OptimizerRange>& ranges,
          const double* settings, const double* verdict) {
  std::vector<kernels::AdamwStep> steps;
  for (const OptimizerRange& range : ranges) {
    steps.push_back({range.count, range.gradient, range.master, range.states[0], range.states[1],
                     range.rounded, range.weight_decay});
  }
  const auto beta1 = static_cast<float>(work.beta1);
  const auto beta2 = static_cast<float>(work.beta2);
  const auto epsilon = static_cast<float>(work.epsilon);
  return [=, steps = std::move(steps)](Team& team) {
    if (verdict[2] == 0) return;
    const kernels::AdamwScalars scalars{static_cast<float>(settings[0]),
                                        beta1,
                                        beta2,
                                        epsilon,
                                        static_cast<float>(verdict[1]),
                                        static_cast<std::int64_t>(settings[2])};
    for (const kernels::AdamwStep& step : steps) kernels::adamw(team, step, scalars);
  };
}

Run sgd(const OptimizerWork& work, const std::vector<OptimizerRange>& ranges,
        const double* settings, const double* verdict) {
  std::vector<kernels::SgdStep> steps;
  for (const OptimizerRange& range : ranges) {
    steps.push_back({range.count, range.gradient, range.master, range.states[0], range.rounded,
                     range.weight_decay});
  }
  const auto momentum = static_cast<float>(work.momentum);
  return [=, steps = std::move(steps)](Team& team) {
    if (verdict[2] == 0) return;
    for (const kernels::SgdStep& step : steps) {
      kernels::sgd(team, step, static_cast<float>(settings[0]), momentum,
                   static_cast<float>(verdict[1]), static_cast<std::int64_t>(settings[2]));
    }
  };
}

}  // namespace

Run prepare_window_work(const Program& program, const Instruction& instruction,
                        const RankMemory& memory) {
  const std::vector<Operand>& inputs = instruction.inputs;
  const Operand& output = instruction.outputs[0];
  switch (std::get<WindowWork>(instruction.work).kind) {
    case WindowKind::FinishCount:
      return finish_count(pointer<const std::int64_t>(program, memory, inputs[0]),
                          pointer<float>(program, memory, output));
    case WindowKind::Squares: {
      std::vector<GradientRange> ranges;
      for (const Operand& range : inputs) {
        ranges.push_back({gradients(program, memory, range), range.shape[0]});
      }
      return squares(std::move(ranges), pointer<std::uint64_t>(program, memory, output));
    }
    case WindowKind::MoveBias:
      return move_bias(static_cast<float>(std::get<WindowWork>(instruction.work).rate),
                       pointer<const double>(program, memory, inputs[0]),
                       pointer<const std::int64_t>(program, memory, inputs[1]), output.shape,
                       pointer<float>(program, memory, output));
    case WindowKind::FinishNorm:
      break;
  }
  return finish_norm(pointer<const std::uint64_t>(program, memory, inputs[0]),
                     pointer<const double>(program, memory, inputs[1]),
                     inputs.size() < 3 ? nullptr : pointer<const float>(program, memory, inputs[2]),
                     pointer<double>(program, memory, output));
}

Run prepare_optimizer_work(const Program& program, const Instruction& instruction,
                           const RankMemory& memory) {
  const auto& work = std::get<OptimizerWork>(instruction.work);
  const std::vector<OptimizerRange> ranges = optimizer_ranges(program, instruction, memory);
  const auto* settings = pointer<const double>(program, memory, instruction.inputs[0]);
  const auto* verdict = pointer<const double>(program, memory, instruction.inputs[1]);
  return work.rule == "sgd" ? sgd(work, ranges, settings, verdict)
                            : adamw(work, ranges, settings, verdict);
}

}  // namespace sw
