#include "tests/runtime/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace sw::test {
namespace {

std::atomic<std::int64_t> calls = 0;

}  // namespace

std::int64_t allocations() { return calls; }

}  // namespace sw::test

void* operator new(std::size_t bytes) {
  ++sw::test::calls;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
