#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.hpp"
#include "train/launch.hpp"

namespace sw {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw ConfigError(fmt::format("{} is a command that only shardwright starts", kRankCommand));
  }
  return value;
}

std::string read_payload(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) {
    throw DeviceError(fmt::format("could not read what to do: {}", std::strerror(errno)));
  }
  std::string payload(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < payload.size()) {
    const ssize_t got =
        ::pread(file, payload.data() + done, payload.size() - done, static_cast<off_t>(done));
    if (got == 0 || (got < 0 && errno != EINTR)) {
      throw DeviceError(fmt::format("could not read what to do: {}", std::strerror(errno)));
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  ::close(file);
  return payload;
}

/// One line to the launcher; a pipe keeps lines of this size whole.
void report(int descriptor, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  message.resize(std::min<std::size_t>(message.size(), 4000));
  message += '\n';
  if (::write(descriptor, message.data(), message.size()) < 0) {
    // The launcher is gone, and with it whoever could read this.
    return;
  }
}

/// An error of another rank arrives with that rank's name on it.
std::string named(int rank, const std::string& message) {
  return message.starts_with("rank ") ? message : fmt::format("rank {}: {}", rank, message);
}

}  // namespace

bool is_rank(int argc, const char* const* argv) {
  return argc > 1 && std::strcmp(argv[1], kRankCommand) == 0;
}

RankStart start_rank(int argc, const char* const* argv) {
  if (argc != 9) {
    throw ConfigError(fmt::format("{} is a command that only shardwright starts", kRankCommand));
  }
  RankStart start;
  start.rank = number(argv[2]);
  start.ranks = number(argv[3]);
  start.job_descriptor = number(argv[4]);
  start.report_descriptor = number(argv[6]);
  start.role = argv[8];
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != number(argv[7])) {
    ::_exit(1);  // the launcher died before the signal was set up
  }
  // Ctrl-C reaches the whole foreground group; the launcher passes it on as SIGTERM.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t stop = stop_signals();
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  start.payload = read_payload(number(argv[5]));
  return start;
}

bool stop_requested() {
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

int run_rank(const RankStart& start, const std::function<int(World& world)>& body) {
  std::unique_ptr<World> world;
  std::string message;
  try {
    world = join_shm_world(start.job_descriptor, start.rank);
    return body(*world);
  } catch (const std::exception& error) {
    message = error.what();
  }
  message =
      message.starts_with("rank ") ? message : fmt::format("rank {}: {}", start.rank, message);
  report(start.report_descriptor, message);
  if (world != nullptr) {
    world->abort(message);
  }
  return kFailed;
}

LaunchResult run_local_ranks(int ranks, const WorldOptions& options,
                             const std::function<int(World& world)>& body) {
  const sigset_t stop = stop_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &stop, &before);  // threads inherit it
  const auto worlds = make_local_worlds(ranks, options);
  std::vector<int> statuses(worlds.size(), 0);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < worlds.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        statuses[rank] = body(*worlds[rank]);
      } catch (const std::exception& error) {
        statuses[rank] = 1;
        worlds[rank]->abort(named(static_cast<int>(rank), error.what()));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const timespec at_once{};
  while (::sigtimedwait(&stop, nullptr, &at_once) > 0) {
    // Taken: it has been acted on.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {std::ranges::max(statuses), worlds.front()->aborted()};
}

}  // namespace sw
