#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

#include "bench/collectives/measure.hpp"
#include "comm/communicator.hpp"

/// collectives RANKS CASE…: times collectives of `shm`. All-reduce is in place, as gradients are
/// reduced; the others are out of place.
namespace {

using namespace sw;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

Collective collective_of(const bench::Case& one, std::byte* memory) {
  const std::int64_t length = one.bytes / 4;
  Collective collective{.kind = collective_from_text(one.kind), .name = "bench"};
  Segment segment{.input = memory, .output = memory, .length = length};
  if (collective.kind != CollectiveKind::AllReduce) segment.output += aligned(one.bytes);
  collective.segments = {segment};
  return collective;
}

/// A core of its own, as mpirun gives its ranks, if there are enough.
void pin(int rank, int ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  for (int core = 0, left = rank; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    (void)sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

void run_rank(World& world, const std::vector<bench::Case>& cases) {
  std::int64_t largest = 0;
  for (const bench::Case& one : cases) largest = std::max(largest, one.bytes);
  // All-reduce needs one buffer, the others a whole and at most another whole.
  const auto window = world.allocate_window(2 * aligned(largest));
  std::memset(window.data(), 0, window.size());
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = world.make_communicator("bench", everyone);
  const auto barrier = group->prepare({.kind = CollectiveKind::Barrier});
  for (const bench::Case& one : cases) {
    const auto prepared = group->prepare(collective_of(one, window.data()));
    bench::measure(
        one, world.rank(), [&] { barrier->run(); }, [&] { prepared->run(); });
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "collectives RANKS KIND:BYTES:CALLS:BATCHES…\n");
    return 2;
  }
  const int ranks = std::atoi(arguments[1]);
  const auto cases = bench::parse_cases(2, count, arguments);
  const ShmJob job(ranks, {});
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    try {
      pin(rank, ranks);
      run_rank(*join_shm_world(job.descriptor(), rank), cases);
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      _exit(1);
    }
  }
  int failures = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
