#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

namespace sw::test {

/// A list of numbers that decides everything about a random thing; once used up, it says 0. So that
/// shrinking the list shrinks the thing.
class Choices {
 public:
  explicit Choices(std::vector<std::uint32_t> numbers) : numbers_(std::move(numbers)) {}
  /// In [0, bound).
  int below(int bound) {
    if (next_ == numbers_.size()) return 0;
    return static_cast<int>(numbers_[next_++] % static_cast<std::uint32_t>(bound));
  }
  bool coin() { return below(2) == 1; }
  [[nodiscard]] bool exhausted() const { return next_ == numbers_.size(); }

 private:
  std::vector<std::uint32_t> numbers_;
  std::size_t next_ = 0;
};

/// A Program of one rank on up to four streams, made of zero, add and slice on chunks of buffers;
/// it reads only what is written. Without edges and memory map.
[[nodiscard]] Program random_program(Choices choices);

/// What its instructions do one after the other, every buffer with memory of its own: the values of
/// the persistent buffers in the end, which begin with `state`.
[[nodiscard]] std::vector<std::vector<float>> run_plainly(const Program& program,
                                                          std::vector<std::vector<float>> state);

}  // namespace sw::test
