// A rank for launch_test: does what its role says.

#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "train/launch.hpp"

namespace sw {
namespace {

void meet(Communicator& group) {
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  group.run(barrier);
}

/// Whether any rank was asked to stop.
bool agree_to_stop(Communicator& group, std::span<std::byte> window) {
  auto* flag = reinterpret_cast<float*>(window.data());
  *flag = stop_requested() ? 1.0F : 0.0F;
  Collective collective;
  collective.kind = CollectiveKind::AllReduce;
  collective.op = ReduceOp::Max;
  collective.segments = {{window.data(), window.data(), 1, 1, 1}};
  group.run(collective);
  return *flag != 0.0F;
}

/// What a thread of the team inherits.
bool stop_signals_blocked_in_a_new_thread() {
  bool blocked = false;
  std::thread([&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) == 1 && (sigismember(&mask, SIGINT) == 1);
  }).join();
  return blocked;
}

int act(const RankStart& start, World& world) {
  std::vector<int> members(static_cast<std::size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  const auto window = world.allocate_window(4096);
  const auto group = world.make_communicator("world", members);
  const bool second = world.rank() == 1;
  world.publish_progress(117, "forward layers.2");
  meet(*group);
  if (start.role == "payload") {
    return start.payload == "every\nbyte" ? 0 : 1;
  }
  if (start.role == "mask") {
    return stop_signals_blocked_in_a_new_thread() ? 0 : 1;
  }
  if (start.role == "throw" && second) {
    throw std::runtime_error("out of luck");
  }
  if (start.role == "killed" && second) {
    std::raise(SIGKILL);
  }
  if (start.role == "exits" && second) {
    std::_Exit(5);
  }
  if (start.role == "leaves" && second) {
    std::_Exit(1);
  }
  if (start.role == "stop" || start.role == "deaf") {
    if (world.rank() == 0) {
      ::kill(::getppid(), SIGTERM);
    }
    if (start.role == "deaf") {
      while (!stop_requested()) {
        ::sched_yield();
      }
      ::kill(::getppid(), SIGINT);
      for (;;) {
        ::pause();
      }
    }
    while (!agree_to_stop(*group, window)) {
    }
    return 75;
  }
  if (start.role == "orphan") {
    const pid_t me = ::getpid();
    if (::write(std::atoi(start.payload.c_str()), &me, sizeof(me)) != sizeof(me)) {
      return 1;
    }
    for (;;) {
      ::pause();
    }
  }
  meet(*group);
  return start.role == "differs" ? 3 : 0;
}

}  // namespace
}  // namespace sw

int main(int argc, char** argv) {
  const auto start = sw::start_rank(argc, argv);
  return sw::run_rank(start, [&](sw::World& world) { return sw::act(start, world); });
}
