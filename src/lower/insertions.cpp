#include "lower/insertions.hpp"

#include <algorithm>
#include <numeric>

namespace sw {

Insertions::Place Insertions::insert_before(std::size_t position, Instruction instruction) {
  inserted_.push_back({position, std::move(instruction)});
  return -static_cast<Place>(inserted_.size());
}

std::size_t Insertions::position(Place inserted) const {
  return inserted_.at(static_cast<std::size_t>(-inserted - 1)).position;
}

void Insertions::apply(std::vector<Instruction>& list) {
  std::vector<std::size_t> order(inserted_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return inserted_[a].position < inserted_[b].position;
  });
  std::vector<Instruction> merged;
  std::vector<InstructionId> id_of_old(list.size());
  std::vector<InstructionId> id_of_inserted(inserted_.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    for (; next < order.size() && inserted_[order[next]].position == i; ++next) {
      id_of_inserted[order[next]] = static_cast<InstructionId>(merged.size());
      merged.push_back(std::move(inserted_[order[next]].instruction));
    }
    if (i < list.size()) {
      for (InstructionId& edge : list[i].after) {
        edge = id_of_old[static_cast<std::size_t>(edge)];
      }
      id_of_old[i] = static_cast<InstructionId>(merged.size());
      merged.push_back(std::move(list[i]));
    }
  }
  const auto id = [&](Place place) {
    return place >= 0 ? id_of_old[static_cast<std::size_t>(place)]
                      : id_of_inserted[static_cast<std::size_t>(-place - 1)];
  };
  for (const auto& [earlier, later] : edges_) {
    Instruction& waits = merged[static_cast<std::size_t>(id(later))];
    if (merged[static_cast<std::size_t>(id(earlier))].stream != waits.stream) {
      waits.after.push_back(id(earlier));
    }
  }
  for (Instruction& instruction : merged) {
    std::vector<InstructionId>& after = instruction.after;
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
  }
  list = std::move(merged);
}

}  // namespace sw
