#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "measure.hpp"

/// mpirun -n RANKS mpi CASE…: the same as shardwright.cpp, with whatever MPI it is compiled for.
int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto cases = bench::parse_cases(1, count, arguments);
  std::int64_t largest = 0;
  for (const auto& one : cases) largest = std::max(largest, one.bytes / 4);
  std::vector<float> input(static_cast<std::size_t>(largest));
  std::vector<float> output(static_cast<std::size_t>(largest));
  for (const auto& one : cases) {
    const int length = static_cast<int>(one.bytes / 4);
    const int part = length / ranks;
    bench::measure(
        one, rank, [] { MPI_Barrier(MPI_COMM_WORLD); },
        [&] {
          if (one.kind == "all_reduce") {
            MPI_Allreduce(MPI_IN_PLACE, input.data(), length, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          } else if (one.kind == "reduce_scatter") {
            MPI_Reduce_scatter_block(input.data(), output.data(), part, MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD);
          } else {
            MPI_Allgather(input.data(), part, MPI_FLOAT, output.data(), part, MPI_FLOAT,
                          MPI_COMM_WORLD);
          }
        });
  }
  MPI_Finalize();
}
