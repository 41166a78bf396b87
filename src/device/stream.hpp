#pragma once

#include <memory>
#include <string>

namespace sw {

/// A unit of work as a stream keeps it: no allocation, the argument outlives the call.
struct Task {
  void (*run)(void* argument) = nullptr;
  void* argument = nullptr;
};

/// An ordered queue of tasks. On the CPU: a thread with a queue. Enqueueing never waits for the
/// work. A task that throws ends the stream: later tasks are dropped and `synchronize` rethrows.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void enqueue(Task task) = 0;
  /// Waits for every task enqueued so far; rethrows the first exception of one of them.
  virtual void synchronize() = 0;
};

/// A stream with a thread of its own. Waiting for work spins briefly only if `may_spin`.
[[nodiscard]] std::unique_ptr<Stream> make_thread_stream(std::string name, bool may_spin);
/// A stream that runs each task in the caller, at once.
[[nodiscard]] std::unique_ptr<Stream> make_inline_stream();

}  // namespace sw
