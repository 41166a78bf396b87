#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "tests/checkpoint/layouts.hpp"
#include "tests/checkpoint/scratch.hpp"

namespace sw::testing {

/// A tensor of each state, cut over the ranks, whose values follow from `salt`.
[[nodiscard]] inline RankPieces salted_pieces(int ranks, std::uint8_t salt) {
  RankPieces pieces(static_cast<std::size_t>(ranks));
  for (const auto* state : {"weight", "momentum"}) {
    LogicalTensor tensor{{"w", state, DType::Float32, {5, 3}}, std::vector<std::byte>(60)};
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<std::byte>(i * 3 + salt);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const PieceRange range{{{0, 5}, {0, 3}}, split(15, ranks, rank)};
      pieces[static_cast<std::size_t>(rank)].push_back(
          {tensor.about, range, values_of(tensor, range)});
    }
  }
  return pieces;
}

/// Saves once with all ranks as threads; throws the error of the lowest rank that has one. A rank
/// that fails aborts the others.
inline void save_once(Files& files, const WriterOptions& common, const TrainingState& state,
                      const RankPieces& ranks, std::optional<std::int64_t> best = std::nullopt) {
  std::atomic<bool> aborted = false;
  std::vector<std::exception_ptr> errors(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          WriterOptions options = common;
          options.rank = static_cast<int>(rank);
          options.ranks = static_cast<int>(ranks.size());
          options.aborted = [&] { return aborted.load(); };
          CheckpointWriter writer(files, options);
          writer.save(state, views(ranks[rank]), best);
          writer.wait();
        } catch (...) {
          errors[rank] = std::current_exception();
          aborted = true;
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

/// Whether a checkpoint holds exactly these pieces, to the bit.
[[nodiscard]] inline bool holds(const std::filesystem::path& checkpoint, const RankPieces& ranks) {
  const CheckpointReader reader(checkpoint);
  for (const auto& rank : ranks) {
    for (const OwnedPiece& piece : rank) {
      std::vector<std::byte> out(piece.values.size());
      reader.read(piece.about.tensor, piece.about.state, piece.range, out);
      if (out != piece.values) {
        return false;
      }
    }
  }
  return true;
}

[[nodiscard]] inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace sw::testing
