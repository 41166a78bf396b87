#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/program.hpp"

/// All ranks' Programs together: who meets whom, and in which order everything can happen.
namespace sw {

/// One instruction of one rank.
struct Site {
  int rank = 0;
  InstructionId instruction = 0;
  friend bool operator==(const Site&, const Site&) = default;
};

/// Which instructions of which ranks are one collective.
class Rendezvous {
 public:
  /// Throws InternalError naming two instructions when the collectives of a group are not the same
  /// sequence with fitting sizes on all members, or a send has no receive.
  explicit Rendezvous(const std::vector<Program>& ranks);

  /// Index of the meeting that `site` takes part in; -1 for what is no collective.
  [[nodiscard]] int meeting(const Site& site) const {
    return meeting_of_[static_cast<std::size_t>(site.rank)]
                      [static_cast<std::size_t>(site.instruction)];
  }
  [[nodiscard]] const std::vector<Site>& members(int meeting) const {
    return members_[static_cast<std::size_t>(meeting)];
  }
  [[nodiscard]] std::size_t size() const { return members_.size(); }

 private:
  friend class Matching;
  std::vector<std::vector<int>> meeting_of_;
  std::vector<std::vector<Site>> members_;
};

/// When an instruction ran: a collective arrives at `start` and moves data from `begin` on.
struct Moment {
  double start = 0;
  double begin = 0;
  double end = 0;
};

/// The course of a step over all ranks: an instruction starts when its predecessors by Order have
/// ended; a collective moves data when all members have started it, and ends on all at once.
struct Course {
  std::vector<std::vector<Moment>> moments;  ///< [rank][instruction]
  /// Empty, or the instructions that wait for each other for ever, each for the next.
  std::vector<Site> deadlock;
};
/// `seconds[rank][instruction]`: how long each takes once it can; the longest member counts.
[[nodiscard]] Course run_course(const std::vector<Program>& ranks, const Rendezvous& rendezvous,
                                const std::vector<std::vector<double>>& seconds);

}  // namespace sw
