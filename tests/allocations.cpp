#include "tests/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace sw::test {
namespace {

std::atomic<std::int64_t> calls = 0;
std::atomic<std::int64_t> bytes = 0;
std::atomic<std::int64_t> peak = 0;
std::int64_t before = 0;

void add(std::int64_t count) {
  const std::int64_t now = bytes += count;
  std::int64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void release(void* memory) {
  bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

std::int64_t allocations() { return calls; }

void watch_peak() {
  before = bytes;
  peak = before;
}

std::int64_t peak_bytes() { return peak - before; }

}  // namespace sw::test

void* operator new(std::size_t count, const std::nothrow_t&) noexcept {
  ++sw::test::calls;
  void* memory = std::malloc(count == 0 ? 1 : count);
  sw::test::add(static_cast<std::int64_t>(malloc_usable_size(memory)));
  return memory;
}
void* operator new(std::size_t count) {
  if (void* memory = operator new(count, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { sw::test::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { sw::test::release(memory); }
