#include "tests/cli/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>

namespace sw::test {
namespace {

int temporary_file() {
  std::array<char, 32> name{"/tmp/shardwright-out-XXXXXX"};
  const int file = ::mkstemp(name.data());
  ::unlink(name.data());
  return file;
}

std::string content_of(int file) {
  std::string text;
  std::array<char, 4096> buffer{};
  ::lseek(file, 0, SEEK_SET);
  ssize_t got = 0;
  while ((got = ::read(file, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments) : out_(temporary_file()) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    std::abort();
  }
  error_ = ends[0];
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(SW_SHARDWRIGHT));
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  id_ = ::fork();
  if (id_ == 0) {
    ::dup2(out_, STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execv(SW_SHARDWRIGHT, argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
}

Process::~Process() {
  if (id_ > 0) {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  ::close(out_);
  ::close(error_);
}

bool Process::read_more() {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(error_, buffer.data(), buffer.size());
  if (got > 0) {
    error_text_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return got > 0;
}

bool Process::wait_for(const std::string& text) {
  while (error_text_.find(text) == std::string::npos) {
    if (!read_more()) {
      return false;
    }
  }
  return true;
}

std::vector<pid_t> Process::children() const {
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", id_, id_));
  std::vector<pid_t> ids;
  for (pid_t id = 0; file >> id;) {
    ids.push_back(id);
  }
  return ids;
}

Ended Process::wait() {
  while (read_more()) {
  }
  int status = 0;
  ::waitpid(id_, &status, 0);
  id_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content_of(out_),
          error_text_};
}

Ended shardwright(const std::vector<std::string>& arguments) { return Process(arguments).wait(); }

}  // namespace sw::test
