#include "device/stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sw {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Stream> (*make)();
};

class StreamTest : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(
    All, StreamTest,
    ::testing::Values(Kind{"Inline", [] { return make_inline_stream(); }},
                      Kind{"Thread", [] { return make_thread_stream("test", false); }},
                      Kind{"SpinningThread", [] { return make_thread_stream("test", true); }}),
    [](const auto& kind) { return kind.param.name; });

struct Entry {
  std::vector<int>* log;
  int value;
};

void append(void* argument) {
  auto* entry = static_cast<Entry*>(argument);
  entry->log->push_back(entry->value);
}

void fail(void*) { throw std::runtime_error("the task failed"); }

TEST_P(StreamTest, RunsTasksInTheOrderTheyCame) {
  std::vector<int> log;
  std::vector<Entry> entries;
  for (int i = 0; i < 1000; ++i) entries.push_back({&log, i});
  const auto stream = GetParam().make();
  for (Entry& entry : entries) stream->enqueue({append, &entry});
  stream->synchronize();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(log, expected);
}

TEST_P(StreamTest, RethrowsTheFirstFailureAndDropsWhatCameAfter) {
  std::vector<int> log;
  Entry before{&log, 1};
  Entry after{&log, 2};
  const auto stream = GetParam().make();
  stream->enqueue({append, &before});
  stream->enqueue({fail, nullptr});
  stream->enqueue({append, &after});
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_THAT(log, ::testing::ElementsAre(1));
  stream->enqueue({append, &after});
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_THAT(log, ::testing::ElementsAre(1));
}

TEST_P(StreamTest, FinishesItsTasksBeforeItGoes) {
  std::vector<int> log;
  Entry entry{&log, 5};
  {
    const auto stream = GetParam().make();
    for (int i = 0; i < 100; ++i) stream->enqueue({append, &entry});
  }
  EXPECT_EQ(log.size(), 100U);
}

TEST(ThreadStream, DoesNotMakeTheCallerWait) {
  const auto stream = make_thread_stream("test", false);
  std::atomic<bool> go{false};
  stream->enqueue({[](void* argument) {
                     while (!static_cast<std::atomic<bool>*>(argument)->load()) {
                       std::this_thread::yield();
                     }
                   },
                   &go});
  go = true;  // Reached only because enqueue came back while the task still ran.
  stream->synchronize();
}

}  // namespace
}  // namespace sw
