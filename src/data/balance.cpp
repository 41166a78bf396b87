#include "data/balance.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace sw {
namespace {

/// Keys that the queries of a sample see, those before them in their document: what causal
/// attention has to do, up to a factor.
double attention_work(const Corpus& corpus, std::int64_t sample) {
  if (sample < 0) {
    return 0;
  }
  const auto length = static_cast<std::size_t>(corpus.sequence_length());
  std::vector<std::int32_t> tokens(length), labels(length), positions(length), documents(length);
  corpus.read(sample, tokens, labels, positions, documents);
  double work = 0;
  std::size_t first = 0;  // of the document
  for (std::size_t i = 0; i < length; ++i) {
    first = i > 0 && documents[i] == documents[i - 1] ? first : i;
    work += static_cast<double>(i - first + 1);
  }
  return work;
}

}  // namespace

std::vector<std::size_t> balanced_groups(std::span<const double> work, std::size_t groups) {
  SW_CHECK(groups > 0 && work.size() % groups == 0, "{} rows in {} groups", work.size(), groups);
  const std::size_t room = work.size() / groups;
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<std::vector<std::size_t>> members(groups);
  std::vector<double> total(groups, 0.0);
  for (const std::size_t index : order) {
    std::size_t best = groups;
    for (std::size_t group = 0; group < groups; ++group) {
      if (members[group].size() < room && (best == groups || total[group] < total[best])) {
        best = group;
      }
    }
    members[best].push_back(index);
    total[best] += work[index];
  }
  std::vector<std::size_t> result;
  for (const std::vector<std::size_t>& group : members) {
    result.insert(result.end(), group.begin(), group.end());
  }
  return result;
}

void balance(Window& window, const Corpus& corpus, DataOptions::Balance by, std::int64_t groups) {
  if (by == DataOptions::Balance::None) {
    return;
  }
  std::vector<double> work;
  for (const std::int64_t sample : window.samples) {
    work.push_back(by == DataOptions::Balance::Tokens
                       ? static_cast<double>(corpus.valid_tokens(sample))
                       : attention_work(corpus, sample));
  }
  std::vector<std::int64_t> samples;
  for (const std::size_t index : balanced_groups(work, static_cast<std::size_t>(groups))) {
    samples.push_back(window.samples[index]);
  }
  window.samples = std::move(samples);
}

}  // namespace sw
