#include "tests/comm/ranks.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>

namespace sw::test {
namespace {

std::string kind_of(const std::exception& error) {
  if (dynamic_cast<const CommError*>(&error) != nullptr) return "CommError";
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return "DeviceError";
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return "ConfigError";
  if (dynamic_cast<const InternalError*>(&error) != nullptr) return "InternalError";
  return "exception";
}

/// Runs the body and returns what it threw. A rank that fails aborts the job, as ranks do.
std::string attempt(World& world, const std::function<void(World&)>& body) {
  try {
    body(world);
  } catch (const std::exception& error) {
    world.abort(error.what());
    return kind_of(error) + ": " + error.what();
  }
  return "";
}

std::vector<Outcome> run_threads(const Job& job, const std::function<void(World&)>& body) {
  auto worlds = make_local_worlds(job.ranks, job.options);
  std::vector<Outcome> outcomes(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < worlds.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank].error = attempt(*worlds[rank], body); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// What a child says to its parent.
struct Report {
  char error[4096];
};

[[noreturn]] void run_child(const ShmJob& job, int rank, Report& report,
                            const std::function<void(World&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string error;
  try {
    const auto world = join_shm_world(job.descriptor(), rank);
    error = attempt(*world, body);
  } catch (const std::exception& joining) {
    error = kind_of(joining) + ": " + joining.what();
  }
  std::strncpy(report.error, error.c_str(), sizeof report.error - 1);
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

void reap(const Job& job, ShmJob& shared, std::vector<int> processes,
          std::vector<Outcome>& outcomes) {
  for (std::size_t ended = 0; ended < processes.size(); ++ended) {
    int status = 0;
    const pid_t process = waitpid(-1, &status, 0);
    ASSERT_GT(process, 0);
    const auto rank = static_cast<std::size_t>(
        std::find(processes.begin(), processes.end(), process) - processes.begin());
    ASSERT_LT(rank, processes.size());
    if (WIFSIGNALED(status)) {
      outcomes[rank].signal = WTERMSIG(status);
      if (job.supervised) {
        shared.abort(fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status)));
      }
    } else {
      outcomes[rank].failed = WEXITSTATUS(status) != 0;
    }
  }
}

std::vector<Outcome> run_processes(const Job& job, const std::function<void(World&)>& body) {
  const auto count = static_cast<std::size_t>(job.ranks);
  const std::size_t bytes = count * sizeof(Report);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* reports = static_cast<Report*>(memory);
  std::vector<Outcome> outcomes(count);
  ShmJob shared(job.ranks, job.options);
  std::fflush(nullptr);
  std::vector<int> processes;
  for (int rank = 0; rank < job.ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) run_child(shared, rank, reports[rank], body);
    processes.push_back(process);
  }
  if (job.meanwhile) job.meanwhile(shared, processes);
  reap(job, shared, processes, outcomes);
  for (std::size_t rank = 0; rank < count; ++rank) outcomes[rank].error = reports[rank].error;
  munmap(memory, bytes);
  return outcomes;
}

}  // namespace

std::string_view to_text(Backend backend) { return backend == Backend::Local ? "local" : "shm"; }

std::vector<Outcome> run_ranks(const Job& job, const std::function<void(World&)>& body) {
  return job.backend == Backend::Local ? run_threads(job, body) : run_processes(job, body);
}

void expect_ranks(const Job& job, const std::function<void(World&)>& body) {
  const std::vector<Outcome> outcomes = run_ranks(job, body);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].error, "") << "rank " << rank;
    EXPECT_EQ(outcomes[rank].signal, 0) << "rank " << rank;
    EXPECT_FALSE(outcomes[rank].failed) << "rank " << rank;
  }
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace sw::test
