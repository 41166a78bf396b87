#include "data/sampler.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"

namespace sw {

Sampler::Sampler(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed,
                 DataOptions::LastWindow last_window)
    : samples_(samples), global_batch_(global_batch), seed_(seed), last_window_(last_window) {
  if (global_batch < 1) {
    throw ConfigError(fmt::format("train.global_batch = {} is no number of samples; use 1 or more",
                                  global_batch));
  }
  if (samples < 1) {
    throw ConfigError("data.train: the dataset is empty: 0 samples; name files that hold text");
  }
  if (windows_per_epoch() == 0) {
    throw ConfigError(fmt::format(
        "data.train has {0} sample(s), fewer than train.global_batch = {1}, and "
        "data.last_window = \"drop\" would drop them all: set train.global_batch to at most {0}, "
        "use a shorter data.sequence_length, add data, or set data.last_window = \"pad\"",
        samples, global_batch));
  }
}

std::int64_t Sampler::windows_of(std::int64_t samples) const {
  const bool pad = last_window_ == DataOptions::LastWindow::Pad;
  return samples / global_batch_ + (pad && samples % global_batch_ != 0 ? 1 : 0);
}

std::int64_t Sampler::windows_per_epoch() const { return windows_of(samples_); }

std::int64_t Sampler::windows_left(std::int64_t position, std::int64_t epochs) const {
  SW_CHECK(position >= 0, "position {}", position);
  const std::int64_t epoch = position / samples_;
  if (epoch >= epochs) {
    return 0;
  }
  return windows_of(samples_ - position % samples_) + (epochs - 1 - epoch) * windows_per_epoch();
}

Window Sampler::window(std::int64_t position) const {
  SW_CHECK(position >= 0, "position {}", position);
  Window window;
  window.epoch = position / samples_;
  std::int64_t offset = position % samples_;
  if (windows_of(samples_ - offset) == 0) {
    window.dropped = samples_ - offset;
    window.epoch += 1;
    offset = 0;
  }
  window.consumed = std::min(global_batch_, samples_ - offset);
  window.next = window.epoch * samples_ + offset + window.consumed;
  window.samples.assign(static_cast<std::size_t>(global_batch_), -1);
  const Permutation order(samples_, seed_, static_cast<std::uint64_t>(window.epoch));
  for (std::int64_t i = 0; i < window.consumed; ++i) {
    window.samples[static_cast<std::size_t>(i)] = order(offset + i);
  }
  return window;
}

}  // namespace sw
