#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/cases.hpp"

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

// Replaced for this program only, and not inlined: the compiler would take new and free for a
// mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sw::kernels::testing {
namespace {

TEST(PreparedKernels, AllocateNothing) {
  for (const Case& c : cases()) {
    for (const DType type : {DType::Float32, DType::BFloat16}) {
      OwnedCall call(c.op, c.parameters, c.inputs, c.outputs, type, type);
      std::vector<std::byte> scratch(static_cast<std::size_t>(scratch_bytes(call.call, 2)) + 64);
      void* aligned = scratch.data();
      std::size_t space = scratch.size();
      std::align(64, 1, aligned, space);
      Team team(2);
      const Prepared kernel = prepare(call.call, static_cast<std::byte*>(aligned), 2);
      const std::int64_t before = allocations.load();
      kernel(team);
      EXPECT_EQ(allocations.load(), before) << c.name;
    }
  }
}

}  // namespace
}  // namespace sw::kernels::testing
