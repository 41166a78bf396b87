#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "device/team.hpp"
#include "runtime/executor.hpp"

namespace sw::test {

/// What one rank's thread owns.
struct RankRun {
  RankRun(World& of_world, const Program& of_program, ExecutorOptions options = {})
      : world(of_world), program(of_program), memory(world, programs()), team(options.threads) {
    executor = std::make_unique<Executor>(program, world, memory, team, options);
  }
  std::vector<const Program*> programs() const { return {&program}; }
  template <typename T = float>
  T* data(const Operand& operand) const {
    return reinterpret_cast<T*>(memory.address(program, operand));
  }

  World& world;
  const Program& program;
  RankMemory memory;
  Team team;
  std::unique_ptr<Executor> executor;
};

/// Runs `body` in a thread for each rank of a local world; what each threw, or null.
inline std::vector<std::exception_ptr> run_worlds(int ranks, const WorldOptions& options,
                                                  const std::function<void(World&)>& body) {
  const auto worlds = make_local_worlds(ranks, options);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < errors.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*worlds[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The same; throws the first error.
inline void run_ranks(int ranks, const std::function<void(World&)>& body) {
  for (const std::exception_ptr& error : run_worlds(ranks, {}, body)) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::string message_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

}  // namespace sw::test
