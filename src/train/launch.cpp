#include "train/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/error.hpp"

namespace sw {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  throw DeviceError(fmt::format("could not {}: {}", what, std::strerror(errno)));
}

/// A descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number, const char* what) : number_(number) {
    if (number_ < 0) {
      fail(what);
    }
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }
  void close() {
    if (number_ >= 0) {
      ::close(number_);
    }
    number_ = -1;
  }

 private:
  int number_ = -1;
};

/// The payload as an anonymous file that ranks inherit by number.
int make_payload(const std::string& payload) {
  const int file = memfd_create("shardwright-payload", 0);
  if (file < 0) {
    fail("make the file that tells ranks what to do");
  }
  std::size_t done = 0;
  while (done < payload.size()) {
    const ssize_t wrote =
        ::pwrite(file, payload.data() + done, payload.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno != EINTR) {
      fail("write what ranks are to do");
    }
    done += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
  }
  return file;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

/// Blocks the signals that the launcher reads from a signalfd; puts the mask back at the end.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) {
      sigaddset(&set_, signal);
    }
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  [[nodiscard]] const sigset_t& set() const { return set_; }
  /// For ranks: as before, but a request to stop waits until the rank can take it.
  void set_for_rank() const {
    sigset_t mask = before_;
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options),
        job_(options.ranks, options.world),
        payload_(make_payload(options.payload), "keep the payload"),
        signals_(::signalfd(-1, &blocked_.set(), SFD_CLOEXEC | SFD_NONBLOCK), "watch signals") {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_NONBLOCK) != 0) {
      fail("make the pipe for ranks' reports");
    }
    report_read_.emplace(ends[0], "read reports");
    report_write_.emplace(ends[1], "write reports");
    ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  }

  ~Launcher() {
    end_all(SIGKILL);
    for (const Process& process : processes_) {
      if (!process.ended) {
        ::waitpid(process.id, nullptr, 0);
      }
    }
  }

  LaunchResult run() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      processes_.push_back(start(rank));
    }
    report_write_->close();
    while (running() > 0) {
      wait_for_news();
      handle_signals();
      handle_ends();
      if (kill_at_ && Clock::now() >= *kill_at_) {
        end_all(SIGKILL);
        kill_at_.reset();
      }
    }
    return result();
  }

 private:
  struct Process {
    pid_t id = -1;
    bool ended = false;
    int status = 0;  ///< exit status, if it exited
  };

  Process start(int rank) {
    const std::string texts[] = {
        "shardwright",
        kRankCommand,
        std::to_string(rank),
        std::to_string(options_.ranks),
        std::to_string(job_.descriptor()),
        std::to_string(payload_.number()),
        std::to_string(report_write_->number()),
        std::to_string(::getpid()),
        options_.role,
    };
    std::vector<char*> arguments;
    for (const std::string& text : texts) {
      arguments.push_back(const_cast<char*>(text.c_str()));  // execv does not write to them
    }
    arguments.push_back(nullptr);
    const pid_t id = ::fork();
    if (id < 0) {
      fail("start a rank");
    }
    if (id == 0) {
      blocked_.set_for_rank();
      ::execv(options_.executable.c_str(), arguments.data());
      ::_exit(127);
    }
    return {id};
  }

  [[nodiscard]] std::int64_t running() const {
    return std::ranges::count(processes_, false, &Process::ended);
  }

  void wait_for_news() {
    pollfd watched{signals_.number(), POLLIN, 0};
    int milliseconds = -1;
    if (kill_at_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
      milliseconds = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
    }
    if (::poll(&watched, 1, milliseconds) < 0 && errno != EINTR) {
      fail("wait for ranks");
    }
  }

  void handle_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.number(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) {
        end_all(stops_ == 0 ? SIGTERM : SIGKILL);
        ++stops_;
      }
    }
  }

  void handle_ends() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      Process& process = processes_[rank];
      int status = 0;
      if (!process.ended && ::waitpid(process.id, &status, WNOHANG) == process.id) {
        process.ended = true;
        process.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        collect_reports();
        if (WIFSIGNALED(status)) {
          died(rank, fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                                 ::strsignal(WTERMSIG(status))));
        } else if (process.status == 127) {
          died(rank, fmt::format("could not start {}", options_.executable));
        } else if (process.status != kDone && process.status != kStopped) {
          failed(rank, process.status);
        }
      }
    }
  }

  /// The rank had no chance to tell the others.
  void died(std::size_t rank, const std::string& how) {
    first_failure(fmt::format("rank {} on {} {}; it {}", rank, host_name(), how,
                              job_.progress(static_cast<int>(rank))));
  }

  /// It ended by itself, so the first error is with the job or on the pipe.
  void failed(std::size_t rank, int status) {
    const std::string aborted = job_.aborted();
    if (!aborted.empty()) {
      first_failure(aborted);
    } else if (!reports_.empty()) {
      first_failure(reports_.substr(0, reports_.find('\n')));
    } else if (status != kComparisonFailed) {
      first_failure(
          fmt::format("rank {} on {} ended with exit status {}", rank, host_name(), status));
    }
  }

  void first_failure(const std::string& message) {
    if (failure_.empty()) {
      failure_ = stops_ > 1 ? "ended by a second signal before ranks could stop" : message;
      job_.abort(message);
      kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(options_.world.deadline_s));
    }
  }

  void collect_reports() {
    std::array<char, 4096> buffer{};
    ssize_t got = 0;
    while ((got = ::read(report_read_->number(), buffer.data(), buffer.size())) > 0) {
      reports_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

  void end_all(int signal) {
    for (const Process& process : processes_) {
      if (!process.ended) {
        ::kill(process.id, signal);
      }
    }
  }

  [[nodiscard]] LaunchResult result() const {
    if (!failure_.empty()) {
      return {1, failure_};
    }
    int status = 0;
    for (const Process& process : processes_) {
      status = std::max(status, process.status);
    }
    return {status, ""};
  }

  const LaunchOptions& options_;
  ShmJob job_;
  Descriptor payload_;
  BlockedSignals blocked_;
  Descriptor signals_;
  std::optional<Descriptor> report_read_;
  std::optional<Descriptor> report_write_;
  std::vector<Process> processes_;
  std::string reports_;
  std::string failure_;
  std::optional<Clock::time_point> kill_at_;
  int stops_ = 0;
};

}  // namespace

LaunchResult launch_ranks(const LaunchOptions& options) { return Launcher(options).run(); }

}  // namespace sw
