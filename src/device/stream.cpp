#include "device/stream.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sw {
namespace {

constexpr int kSpins = 2000;
constexpr std::size_t kFirstCapacity = 64;
constexpr std::size_t kLongestThreadName = 15;  // pthread_setname_np

/// First in, first out; grows when full and never shrinks, so that a warm queue allocates nothing.
class TaskRing {
 public:
  void push(Task task) {
    if (count_ == tasks_.size()) grow();
    tasks_[(first_ + count_) % tasks_.size()] = task;
    ++count_;
  }
  Task pop() {
    const Task task = tasks_[first_];
    first_ = (first_ + 1) % tasks_.size();
    --count_;
    return task;
  }
  void clear() { count_ = 0; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

 private:
  void grow() {
    std::vector<Task> larger(2 * tasks_.size());
    for (std::size_t i = 0; i < count_; ++i) larger[i] = tasks_[(first_ + i) % tasks_.size()];
    tasks_ = std::move(larger);
    first_ = 0;
  }

  std::vector<Task> tasks_ = std::vector<Task>(kFirstCapacity);
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

class ThreadStream final : public Stream {
 public:
  ThreadStream(std::string name, bool may_spin)
      : name_(std::move(name)), may_spin_(may_spin), thread_([this] { work(); }) {}

  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      pending_.fetch_add(1, std::memory_order_release);
    }
    work_arrived_.notify_one();
    thread_.join();
  }
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;

  void enqueue(Task task) override {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      queue_.push(task);
      pending_.fetch_add(1, std::memory_order_release);
    }
    work_arrived_.notify_one();
  }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [this] { return queue_.empty() && !busy_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work() {
    pthread_setname_np(pthread_self(), name_.substr(0, kLongestThreadName).c_str());
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.empty() && may_spin_) {
        lock.unlock();
        spin();
        lock.lock();
      }
      work_arrived_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Task task = queue_.pop();
      pending_.fetch_sub(1, std::memory_order_relaxed);
      busy_ = true;
      lock.unlock();
      std::exception_ptr failure;
      try {
        task.run(task.argument);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      if (failure) fail(std::move(failure));
      if (queue_.empty()) drained_.notify_all();
    }
  }

  void spin() const {
    for (int i = 0; i < kSpins && pending_.load(std::memory_order_acquire) == 0; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }

  /// Holds the lock.
  void fail(std::exception_ptr failure) {
    failure_ = std::move(failure);
    queue_.clear();
    pending_.store(0, std::memory_order_relaxed);
  }

  const std::string name_;
  const bool may_spin_;
  std::mutex mutex_;
  std::condition_variable work_arrived_;
  std::condition_variable drained_;
  TaskRing queue_;
  /// Tasks in the queue, readable without the lock.
  std::atomic<std::int64_t> pending_{0};
  bool busy_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of the above
};

class InlineStream final : public Stream {
 public:
  void enqueue(Task task) override {
    if (failure_) return;
    try {
      task.run(task.argument);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void synchronize() override {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<Stream> make_thread_stream(std::string name, bool may_spin) {
  return std::make_unique<ThreadStream>(std::move(name), may_spin);
}

std::unique_ptr<Stream> make_inline_stream() { return std::make_unique<InlineStream>(); }

}  // namespace sw
