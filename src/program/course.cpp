#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "program/rendezvous.hpp"
#include "program/verify_work.hpp"

namespace sw {
namespace {

std::size_t index(int id) { return static_cast<std::size_t>(id); }

class Runner {
 public:
  Runner(const std::vector<Program>& ranks, const Rendezvous& rendezvous,
         const std::vector<std::vector<double>>& seconds)
      : ranks_(ranks), rendezvous_(rendezvous), seconds_(seconds), present_(rendezvous.size(), 0) {
    for (const Program& program : ranks) add(program);
  }

  Course run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < states_[r].size(); ++i) {
        if (states_[r][i].missing == 0) {
          ready_.push_back({static_cast<int>(r), static_cast<InstructionId>(i)});
        }
      }
    }
    while (!ready_.empty()) {
      const Site site = ready_.back();
      ready_.pop_back();
      start(site);
    }
    course_.deadlock = find_deadlock();
    return std::move(course_);
  }

 private:
  struct State {
    int missing = 0;  ///< predecessors that have not ended
    bool started = false;
    bool ended = false;
    std::vector<InstructionId> followers;
  };

  void add(const Program& program) {
    const Order order(program);
    std::vector<State> states(program.instructions.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto id = static_cast<InstructionId>(i);
      for (const InstructionId before : order.predecessors(id)) {
        ++states[i].missing;
        states[index(before)].followers.push_back(id);
      }
    }
    orders_.push_back(order);
    course_.moments.emplace_back(states.size());
    states_.push_back(std::move(states));
  }

  State& state(const Site& site) { return states_[index(site.rank)][index(site.instruction)]; }
  Moment& moment(const Site& site) {
    return course_.moments[index(site.rank)][index(site.instruction)];
  }

  void start(const Site& site) {
    state(site).started = true;
    const int meeting = rendezvous_.meeting(site);
    if (meeting < 0) {
      Moment& when = moment(site);
      when.begin = when.start;
      end(site, when.begin + seconds_[index(site.rank)][index(site.instruction)]);
      return;
    }
    const std::vector<Site>& members = rendezvous_.members(meeting);
    if (++present_[index(meeting)] < static_cast<int>(members.size())) return;
    double begin = 0;
    double longest = 0;
    for (const Site& member : members) {
      begin = std::max(begin, moment(member).start);
      longest = std::max(longest, seconds_[index(member.rank)][index(member.instruction)]);
    }
    for (const Site& member : members) {
      moment(member).begin = begin;
      end(member, begin + longest);
    }
  }

  void end(const Site& site, double when) {
    moment(site).end = when;
    state(site).ended = true;
    for (const InstructionId follower : state(site).followers) {
      const Site next{site.rank, follower};
      moment(next).start = std::max(moment(next).start, when);
      if (--state(next).missing == 0) ready_.push_back(next);
    }
  }

  /// What a stuck instruction waits for.
  Site blocker(const Site& site) {
    if (!state(site).started) {
      for (const InstructionId id : orders_[index(site.rank)].predecessors(site.instruction)) {
        if (!state({site.rank, id}).ended) return {site.rank, id};
      }
    }
    for (const Site& member : rendezvous_.members(rendezvous_.meeting(site))) {
      if (!state(member).started) return member;
    }
    SW_CHECK(false, "{} is stuck for no reason",
             place_of(ranks_[index(site.rank)], site.instruction));
    return site;
  }

  std::vector<Site> find_deadlock() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < states_[r].size(); ++i) {
        if (!states_[r][i].ended) {
          return find_cycle({static_cast<int>(r), static_cast<InstructionId>(i)});
        }
      }
    }
    return {};
  }

  std::vector<Site> find_cycle(Site site) {
    std::vector<Site> path;
    for (;;) {
      const auto seen = std::find(path.begin(), path.end(), site);
      if (seen != path.end()) return {seen, path.end()};
      path.push_back(site);
      site = blocker(site);
    }
  }

  const std::vector<Program>& ranks_;
  const Rendezvous& rendezvous_;
  const std::vector<std::vector<double>>& seconds_;
  std::vector<Order> orders_;
  std::vector<std::vector<State>> states_;
  std::vector<int> present_;  ///< per meeting: members that have started it
  std::vector<Site> ready_;
  Course course_;
};

}  // namespace

Course run_course(const std::vector<Program>& ranks, const Rendezvous& rendezvous,
                  const std::vector<std::vector<double>>& seconds) {
  return Runner(ranks, rendezvous, seconds).run();
}

void verify(const std::vector<Program>& ranks) {
  const Rendezvous rendezvous(ranks);
  std::vector<std::vector<double>> seconds;
  for (const Program& program : ranks) seconds.emplace_back(program.instructions.size(), 0.0);
  const Course course = run_course(ranks, rendezvous, seconds);
  if (course.deadlock.empty()) return;
  std::vector<std::string> places;
  for (const Site& site : course.deadlock) {
    places.push_back(place_of(ranks[index(site.rank)], site.instruction));
  }
  throw InternalError(
      fmt::format("these instructions wait for each other for ever: {}", fmt::join(places, ", ")));
}

}  // namespace sw
