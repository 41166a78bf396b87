#pragma once

#include <vector>

#include "lower/schedule.hpp"

/// When a stage of a pipeline updates its weights, and with which version of them a micro-batch is
/// computed. Version k of a window is what k of its updates have made; every window begins with
/// version 0 on all stages, for the pipeline is empty between windows.
namespace sw {

struct UpdateRule {
  /// Micro-batches whose gradients an update adds up; 0: all of the window, which is synchronous
  /// training.
  int every = 0;
  /// The version of its stage's weights that a micro-batch goes through, forward and backward.
  std::vector<std::vector<int>> versions;  ///< [stage][micro-batch]

  [[nodiscard]] bool asynchronous() const { return every > 0; }
  [[nodiscard]] int updates(int micro_batches) const {
    return asynchronous() ? micro_batches / every : 1;
  }
  [[nodiscard]] int update_of(int micro_batch) const {
    return asynchronous() ? micro_batch / every : 0;
  }
  /// The first micro-batch of the same update.
  [[nodiscard]] int first_of_update(int micro_batch) const {
    return update_of(micro_batch) * every;
  }
};

[[nodiscard]] bool is_asynchronous(PipelineSchedule schedule);

/// Of `order`, which is 1f1b.
///
///   pipedream      an update a micro-batch; the version is the newest that the stage has when the
///                  forward begins, and is kept (stashed) for the backward
///                  (Narayanan et al. 2019, SOSP, section 3.3)
///   pipedream_2bw  an update every P micro-batches; those of update u go through version
///                  u - 1, which every stage has by then
///                  (Narayanan et al. 2021, arXiv:2006.09503, section 3.1)
///   others         synchronous
[[nodiscard]] UpdateRule update_rule(PipelineSchedule schedule, const Stages& stages,
                                     const PipelineOrder& order, int micro_batches);

}  // namespace sw
