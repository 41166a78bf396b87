#include <gtest/gtest.h>

#include "tests/allocations.hpp"
#include "tests/kernels/cases.hpp"

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
      const std::int64_t before = test::allocations();
      kernel(team);
      EXPECT_EQ(test::allocations(), before) << c.name;
    }
  }
}

}  // namespace
}  // namespace sw::kernels::testing
