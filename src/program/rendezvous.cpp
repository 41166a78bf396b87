#include "program/rendezvous.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "program/collective.hpp"
#include "program/verify_work.hpp"

namespace sw {
namespace {

const Instruction& at(const std::vector<Program>& ranks, const Site& site) {
  return ranks[static_cast<std::size_t>(site.rank)]
      .instructions[static_cast<std::size_t>(site.instruction)];
}

std::string describe(const Instruction& instruction) {
  const auto& work = std::get<CollectiveWork>(instruction.work);
  const CollectiveSizes sizes = sizes_of(instruction, Algorithm::Direct);
  std::string text = fmt::format("{} of", to_text(work.kind));
  for (const Extent& extent : sizes.segments) {
    text += fmt::format(" [{}, {}, {}]", extent.outer, extent.length, extent.trailing);
  }
  return text + fmt::format(" {}", to_text(sizes.dtype));
}

/// Whether two members may do these as one collective.
bool fits(const Instruction& a, const Instruction& b) {
  const auto& work_a = std::get<CollectiveWork>(a.work);
  const auto& work_b = std::get<CollectiveWork>(b.work);
  const CollectiveSizes sizes_a = sizes_of(a, Algorithm::Direct);
  const CollectiveSizes sizes_b = sizes_of(b, Algorithm::Direct);
  if (sizes_a.dtype != sizes_b.dtype || sizes_a.segments.size() != sizes_b.segments.size()) {
    return false;
  }
  if (work_a.kind == CollectiveKind::Send) {
    return work_b.kind == CollectiveKind::Receive && sizes_a.segments == sizes_b.segments;
  }
  return work_a.kind == work_b.kind && work_a.op == work_b.op && work_a.routing == work_b.routing &&
         (work_a.kind != CollectiveKind::Broadcast || work_a.peer == work_b.peer) &&
         (work_a.kind == CollectiveKind::AllToAll || sizes_a.segments == sizes_b.segments);
}

}  // namespace

/// Builds a Rendezvous.
class Matching {
 public:
  Matching(const std::vector<Program>& ranks, Rendezvous& result) : ranks_(ranks), result_(result) {
    for (const Program& program : ranks) {
      result.meeting_of_.emplace_back(program.instructions.size(), -1);
      collect(program);
    }
    for (const auto& [key, lines] : lines_) {
      if (key.receiver < 0) {
        match_group(key, lines);
      } else {
        match_pair(key, lines);
      }
    }
  }

 private:
  /// A sequence of meetings: the collectives of a group (receiver -1), or what one member sends to
  /// another.
  struct Key {
    std::string communicator;
    std::vector<int> members;
    int sender = -1;
    int receiver = -1;
    auto operator<=>(const Key&) const = default;
  };
  /// [rank]: its instructions in the sequence.
  using Lines = std::map<int, std::vector<InstructionId>>;

  void collect(const Program& program) {
    for (const Group& group : program.groups) {
      lines_[{communicator_name(program, group), group.members}][program.rank];
    }
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const auto* work = std::get_if<CollectiveWork>(&program.instructions[i].work);
      if (work == nullptr) continue;
      const Group& group = group_of(program, *work);
      Key key{communicator_name(program, group), group.members};
      const int mine = rank_in(program, group);
      if (work->kind == CollectiveKind::Send) {
        key.sender = mine;
        key.receiver = work->peer;
      } else if (work->kind == CollectiveKind::Receive) {
        key.sender = work->peer;
        key.receiver = mine;
      }
      lines_[key][program.rank].push_back(static_cast<InstructionId>(i));
    }
  }

  void match_group(const Key& key, const Lines& lines) {
    for (const int rank : key.members) {
      SW_CHECK(lines.contains(rank), "group {} has member {}, whose Program has no such group",
               key.communicator, rank);
    }
    match(key, lines, key.members);
  }

  void match_pair(const Key& key, Lines lines) {
    const int sender = key.members[static_cast<std::size_t>(key.sender)];
    const int receiver = key.members[static_cast<std::size_t>(key.receiver)];
    lines[sender];
    lines[receiver];
    match(key, lines, {sender, receiver});
  }

  void match(const Key& key, const Lines& lines, const std::vector<int>& members) {
    const std::vector<InstructionId>& first = lines.at(members.front());
    for (const int rank : members) {
      const std::vector<InstructionId>& other = lines.at(rank);
      const std::size_t common = std::min(first.size(), other.size());
      for (std::size_t i = 0; i < common; ++i) {
        check_fit(key, {members.front(), first[i]}, {rank, other[i]});
      }
      if (first.size() == other.size()) continue;
      const bool more = first.size() > other.size();
      const Site extra = more ? Site{members.front(), first[common]} : Site{rank, other[common]};
      throw InternalError(fmt::format("{} on group {} ({}) has no counterpart on rank {}",
                                      place(extra), key.communicator, describe(at(ranks_, extra)),
                                      more ? rank : members.front()));
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      std::vector<Site> sites;
      for (const int rank : members) sites.push_back({rank, lines.at(rank)[i]});
      for (const Site& site : sites) {
        result_.meeting_of_[static_cast<std::size_t>(site.rank)]
                           [static_cast<std::size_t>(site.instruction)] =
            static_cast<int>(result_.members_.size());
      }
      result_.members_.push_back(std::move(sites));
    }
  }

  void check_fit(const Key& key, const Site& a, const Site& b) const {
    if (a == b || fits(at(ranks_, a), at(ranks_, b))) return;
    throw InternalError(fmt::format("on group {}, {} is {} where {} is {}", key.communicator,
                                    place(a), describe(at(ranks_, a)), place(b),
                                    describe(at(ranks_, b))));
  }

  [[nodiscard]] std::string place(const Site& site) const {
    return place_of(ranks_[static_cast<std::size_t>(site.rank)], site.instruction);
  }

  const std::vector<Program>& ranks_;
  Rendezvous& result_;
  std::map<Key, Lines> lines_;
};

Rendezvous::Rendezvous(const std::vector<Program>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    SW_CHECK(
        ranks[r].rank == static_cast<int>(r) && ranks[r].world == static_cast<int>(ranks.size()),
        "Program {} of {} says that it is rank {} of {}", r, ranks.size(), ranks[r].rank,
        ranks[r].world);
  }
  Matching(ranks, *this);
}

}  // namespace sw
