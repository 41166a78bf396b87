#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "optim/options.hpp"
#include "train/session.hpp"

/// Two layouts from the same state on the same samples: what `verify` compares. The ranks of both
/// are threads of this process; bits do not depend on that.
namespace sw {

/// Logical tensors, put together from what the ranks own.
using LogicalTensors = std::map<std::string, std::vector<float>>;

struct StepRecord {
  double loss = 0;
  double balance_loss = 0, z_loss = 0;    ///< 0: none
  std::vector<std::int64_t> expert_load;  ///< [layers with experts, E]
  std::int64_t valid_tokens = 0;
  double gradient_norm = 0;
  bool applied = true;
  LogicalTensors gradients;  ///< reduced, before clipping
  LogicalTensors weights;    ///< after the update (the masters)
};

struct SideRecord {
  std::vector<StepRecord> steps;
  bool replicas_equal =
      true;  ///< every copy of every weight is the same on all ranks that hold it, to the bit
  bool account_equal = true;  ///< bytes, calls and peak memory: planned = measured, on every rank
  std::int64_t owned_elements = 0;  ///< of all ranks' gradient norms
};

/// Runs `compilation` from the state that `start` sets, a step per window. `after`, if given, is
/// called on every rank's thread when all steps are done. Throws what a rank threw.
[[nodiscard]] SideRecord run_side(const Compilation& compilation, const Corpus& corpus,
                                  const std::vector<Window>& windows,
                                  const std::vector<StepSettings>& settings,
                                  const std::function<void(Session&)>& start,
                                  const std::function<void(Session&, World&)>& after = nullptr);

struct WorstTensor {
  std::string name;
  double relative_error = 0;
};

struct Comparison {
  bool equal = false;
  bool bit_identical = false;
  double loss[2] = {0, 0};                ///< of the last step
  std::int64_t valid_tokens[2] = {0, 0};  ///< of all steps
  WorstTensor worst_gradient;  ///< of the first step: later ones start from weights that may differ
  WorstTensor worst_weight;    ///< after the last step
  double bound = 0;
};

/// Holds `a` to the reference `b`. A gradient's relative error: largest |a - b| over max(largest
/// |b| of that tensor, 1e-3 · largest |b| of all gradients). A weight's: worst ratio of difference
/// to allowance, times `bound`; the allowance of an element is bound · max|w| plus the first-order
/// image of the gradient bound under the update rule, added over the steps.
[[nodiscard]] Comparison compare(const SideRecord& a, const SideRecord& b,
                                 const OptimizerOptions& optimizer,
                                 const std::vector<StepSettings>& settings, double bound);

/// What two layouts may differ by: 1e-5 in float32. bfloat16 keeps 8 bits, so one rounding is 2^-9;
/// activations round differently where sums were cut, and a gradient sees some tens of such
/// roundings in a row: 3e-2. The same where only gradients are bfloat16: each micro-batch and each
/// reduction rounds once more.
[[nodiscard]] double verify_bound(const CompileOptions& options);

/// The reference of a layout: one rank, the same global batch and the same number of micro-batches
/// (what is defined per micro-batch means the same).
[[nodiscard]] CompileOptions one_rank(CompileOptions options);
[[nodiscard]] ParallelOptions one_rank(const ParallelOptions& layout);

}  // namespace sw
