#pragma once

#include <map>
#include <string>
#include <vector>

#include "sharding/sharding.hpp"

/// The cheapest proof there is: every rank of a mesh simulated in one process in double precision,
/// every value and copy of the joint graph put together from its pieces and held to the unsharded
/// one. Independent of lowering, kernels of the product, and communicators.
namespace sw::test {

/// A whole tensor or a rank's piece: doubles, or int32 for ids.
struct Tensor {
  Shape shape;
  std::vector<double> real;
  std::vector<std::int32_t> integer;
  std::vector<std::int64_t> key;
  bool whole_numbers = false;  ///< `integer` holds the elements, if there are any
};

using Whole = std::map<ValueId, Tensor>;

/// Tokens, labels (a fifth masked), positions and documents (two documents a row), count, and
/// parameters, from a seed.
Whole make_data(const ModelGraph& model, std::uint64_t seed);

/// Runs the joint graph on whole tensors.
Whole run_whole(const ModelGraph& model, const Whole& data);

struct Reassembled {
  double worst_error =
      0;  ///< largest |sharded - whole| / largest |whole| over all copies of all values
  std::string worst_value;
  int copies = 0;
  bool replicas_equal = true;  ///< copies that should be the same on several ranks are, to the bit
  std::map<std::string, double> sent;  ///< "kind axes" -> bytes of float32 elements sent by rank 0
};

/// Runs the sharded graph on all ranks and reassembles every copy.
Reassembled run_sharded(const ModelGraph& model, const ShardedGraph& sharded, const Whole& data,
                        const Whole& expected);

}  // namespace sw::test
