// Tensor parallel: products cut along what they make (column) or what they sum over (row), and what
// a layer then moves. T ranks; h = b*s*h*act_bytes, the bytes of a micro-batch's residual stream.
// Source: Shoeybi et al. 2019 (Megatron-LM), arXiv:1909.08053, section 3; with sequence parallel
// Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values;  ///< row by row

  [[nodiscard]] double at(std::size_t row, std::size_t column) const {
    return values[row * columns + column];
  }
};

Matrix matrix_of(const Inputs& in, std::string_view name, const Json& lists) {
  const auto refuse = [&] {
    in.reject(fmt::format("{} = {} is not a matrix; one of 1 row and 2 columns is {}=[[1,2]]", name,
                          lists.dump(), name));
  };
  if (!lists.is_array() || lists.empty() || !lists[0].is_array() || lists[0].empty()) {
    refuse();
  }
  Matrix matrix{lists.size(), lists[0].size(), {}};
  for (const Json& row : lists) {
    if (!row.is_array() || row.size() != matrix.columns) {
      refuse();
    }
    for (const Json& value : row) {
      if (!value.is_number()) {
        refuse();
      }
      matrix.values.push_back(value.get<double>());
    }
  }
  return matrix;
}

Json lists_of(const Matrix& matrix) {
  Json lists = Json::array();
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    Json values = Json::array();
    for (std::size_t column = 0; column < matrix.columns; ++column) {
      values.push_back(plain(matrix.at(row, column)));
    }
    lists.push_back(std::move(values));
  }
  return lists;
}

Matrix multiplied(const Inputs& in, std::string_view left, std::string_view right) {
  const Matrix x = matrix_of(in, left, in.raw(left));
  const Matrix w = matrix_of(in, right, in.raw(right));
  if (x.columns != w.rows) {
    in.reject(fmt::format("{} has {} columns but {} has {} rows; they must be as many", left,
                          x.columns, right, w.rows));
  }
  Matrix y{x.rows, w.columns, {}};
  for (std::size_t row = 0; row < x.rows; ++row) {
    for (std::size_t column = 0; column < w.columns; ++column) {
      double value = 0;
      for (std::size_t i = 0; i < x.columns; ++i) {
        value += x.at(row, i) * w.at(i, column);
      }
      y.values.push_back(value);
    }
  }
  return y;
}

bool same_shape(const std::vector<Matrix>& parts) {
  return std::ranges::all_of(parts, [&](const Matrix& part) {
    return part.rows == parts[0].rows && part.columns == parts[0].columns;
  });
}

/// The sum of all parts, times `scale`.
Matrix summed(const std::vector<Matrix>& parts, double scale) {
  Matrix all{parts[0].rows, parts[0].columns, std::vector<double>(parts[0].values.size(), 0)};
  for (const Matrix& part : parts) {
    for (std::size_t i = 0; i < part.values.size(); ++i) {
      all.values[i] += part.values[i] * scale;
    }
  }
  return all;
}

void join_columns(const Inputs& in, Outputs& out, const std::vector<Matrix>& parts) {
  Matrix all{parts[0].rows, 0, {}};
  for (const Matrix& part : parts) {
    if (part.rows != all.rows) {
      in.reject(
          fmt::format("a part of {} rows cannot stand beside one of {}; slices of columns "
                      "have the rows of Y",
                      part.rows, all.rows));
    }
    all.columns += part.columns;
  }
  for (std::size_t row = 0; row < all.rows; ++row) {
    for (const Matrix& part : parts) {
      for (std::size_t column = 0; column < part.columns; ++column) {
        all.values.push_back(part.at(row, column));
      }
    }
  }
  out.set("combine", "concat", "");
  out.set("collective", "all_gather", "");
  out.set("or", "none", "");
  out.set("Y", lists_of(all));
  out.note("none: where a product cut by rows follows, each rank's slice is all that it reads");
  if (parts.size() > 1 && same_shape(parts)) {
    out.wrong("Y", lists_of(summed(parts, 1)), "1",
              "an all-reduce adds slices that are different columns of Y");
  }
}

void add_rows(const Inputs& in, Outputs& out, const std::vector<Matrix>& parts) {
  for (const Matrix& part : parts) {
    if (part.rows != parts[0].rows || part.columns != parts[0].columns) {
      in.reject(
          fmt::format("a part of {} x {} cannot be added to one of {} x {}; partial sums "
                      "have the shape of Y",
                      part.rows, part.columns, parts[0].rows, parts[0].columns));
    }
  }
  out.set("combine", "sum", "");
  out.set("collective", "all_reduce", "");
  out.set("Y", lists_of(summed(parts, 1)));
  if (parts.size() > 1) {
    out.wrong("Y", lists_of(summed(parts, 1 / static_cast<double>(parts.size()))), "1",
              "the mean divides a sum over the inner dim by the ranks");
  }
}

void put_parts(Outputs& out, const std::vector<Matrix>& parts) {
  Json lists = Json::array();
  for (const Matrix& part : parts) {
    lists.push_back(lists_of(part));
  }
  out.set("parts", lists);
}

void whole_product(const Inputs& in, Outputs& out) {
  out.set("Y", lists_of(multiplied(in, "X", "W")));
}

void column_product(const Inputs& in, Outputs& out) {
  const std::vector<Matrix> parts = {multiplied(in, "X", "W1"), multiplied(in, "X", "W2")};
  put_parts(out, parts);
  join_columns(in, out, parts);
}

void row_product(const Inputs& in, Outputs& out) {
  const std::vector<Matrix> parts = {multiplied(in, "X1", "W1"), multiplied(in, "X2", "W2")};
  put_parts(out, parts);
  add_rows(in, out, parts);
}

void joined_parts(const Inputs& in, Outputs& out) {
  const Json& lists = in.raw("parts");
  if (!lists.is_array() || lists.empty()) {
    in.reject(fmt::format("parts = {} is not a list of matrices, as in parts=[[[5]],[[11]]]",
                          lists.dump()));
  }
  std::vector<Matrix> parts;
  for (const Json& part : lists) {
    parts.push_back(matrix_of(in, "parts", part));
  }
  const std::string cut = in.word("split", "");
  if (cut == "column") {
    join_columns(in, out, parts);
  } else if (cut == "row") {
    add_rows(in, out, parts);
  } else {
    in.reject(
        fmt::format("parts do not say how W was cut, and split is {}; set split=column (they are "
                    "slices of Y) or split=row (they are partial sums)",
                    cut.empty() ? "left out" : cut));
  }
}

/// Collectives of one layer and micro-batch, each over h.
struct LayerCalls {
  std::int64_t all_reduce = 0;
  std::int64_t reduce_scatter = 0;
  std::int64_t all_gather = 0;

  /// In phases of (T-1)/T*h.
  [[nodiscard]] std::int64_t phases() const { return 2 * all_reduce + reduce_scatter + all_gather; }
};

constexpr std::int64_t kForwardSums = 2;   ///< outputs of attention and of the feed-forward
constexpr std::int64_t kBackwardSums = 2;  ///< gradients of what they read

bool fully_recomputed(const Inputs& in) {
  const std::string recompute = in.word("recompute", "none");
  if (recompute != "none" && recompute != "full" && recompute != "selective") {
    in.reject(fmt::format("recompute = \"{}\" is none of none, selective, full", recompute));
  }
  return recompute == "full";
}

/// `repeated`: sums of the forward that run again.
LayerCalls layer_calls(const Inputs& in, std::int64_t repeated) {
  const std::int64_t sums = kForwardSums + kBackwardSums + repeated;
  const bool keep = in.flag("keep_gathered", false);
  if (!in.flag("sequence_parallel", false)) {
    if (keep) {
      in.reject("keep_gathered = true needs sequence_parallel = true: nothing else is gathered");
    }
    return {.all_reduce = sums};
  }
  const std::int64_t gathers = kForwardSums + kBackwardSums + (repeated > 0 ? kForwardSums : 0);
  return {.reduce_scatter = sums, .all_gather = gathers + (keep ? 0 : kForwardSums)};
}

void layer_sums(const Inputs& in, Outputs& out) {
  const bool again = fully_recomputed(in);
  out.set("forward", kForwardSums);
  out.set("backward", kBackwardSums);
  out.set("total", kForwardSums + kBackwardSums + (again ? kForwardSums : 0));
  out.set("total_full_recompute", kForwardSums + kBackwardSums + kForwardSums);
  out.set("total_full_recompute_here", kForwardSums + kBackwardSums + kForwardSums - 1);
  out.note("with sequence parallel each is a reduce-scatter and an all-gather of the same bytes");
  out.note(
      "here: the last sum of a layer makes the next one's input, which is kept, so it is not "
      "repeated");
}

void layer_bytes(const Inputs& in, Outputs& out) {
  const auto ranks = static_cast<double>(in.count("tp"));
  const double elements = static_cast<double>(in.count("b")) * static_cast<double>(in.count("s")) *
                          static_cast<double>(in.count("h"));
  const double phase = (ranks - 1) * (elements * in.bytes("act_bytes")) / ranks *
                       static_cast<double>(in.count_or("layers", 1)) *
                       static_cast<double>(in.count_or("microbatches", 1));
  const bool again = fully_recomputed(in);
  const LayerCalls calls = layer_calls(in, again ? kForwardSums : 0);
  out.quantity("sent_per_rank", static_cast<double>(calls.phases()) * phase, "B");
  if (again) {
    const auto here = static_cast<double>(layer_calls(in, kForwardSums - 1).phases());
    out.quantity("sent_per_rank_here", here * phase, "B");
  }
  if (calls.all_reduce == 0) {
    out.quantity("reduce_scatter", static_cast<double>(calls.reduce_scatter) * phase, "B");
    out.quantity("all_gather", static_cast<double>(calls.all_gather) * phase, "B");
  }
  if (std::fmod(elements, ranks) != 0) {
    out.note(fmt::format("{} elements do not divide by {}: the mean over ranks", elements, ranks));
  }
  out.note("embedding, head and loss come on top");
}

/// A100: 12 links of 25 GB/s each way. Source: NVIDIA A100 Tensor Core GPU Architecture, 2020.
void one_direction(const Inputs& in, Outputs& out) {
  const double both = in.bytes_per_second("bidirectional");
  const std::string unit = in.unit({"bidirectional"}, "B/s");
  out.quantity("per_direction", both / 2, unit);
  out.wrong("per_direction", plain(both / unit_factor(unit)), unit,
            "a sender has one direction: this halves its time");
}

}  // namespace

std::vector<Rule> tensor_rules() {
  return {
      {"Y = X W", {"X", "W"}, {}, {"W1", "W2", "X1", "X2", "parts"}, whole_product},
      {"by columns: Y = [X W1, X W2]",
       {"X", "W1", "W2"},
       {},
       {"W", "X1", "X2", "parts"},
       column_product},
      {"by rows: Y = X1 W1 + X2 W2",
       {"X1", "X2", "W1", "W2"},
       {},
       {"X", "W", "parts"},
       row_product},
      {"column: Y = [parts], an all-gather or none; row: Y = sum of parts, an all-reduce",
       {"parts"},
       {"split"},
       {"X", "W", "W1", "W2", "X1", "X2"},
       joined_parts},
      {"all-reduces of a layer: forward 2 + backward 2; recompute=full repeats the forward's 2",
       {"recompute"},
       {},
       {},
       layer_sums},
      {"a layer sends 4 * 2*(T-1)/T * b*s*h*act_bytes; recompute=full (4+2) * 2; "
       "sequence_parallel 4 scatters + 4 gathers and, unless keep_gathered, 2 gathers again",
       {"b", "s", "h", "tp", "act_bytes"},
       {"recompute", "sequence_parallel", "keep_gathered", "layers", "microbatches"},
       {},
       layer_bytes},
      {"per direction = bidirectional / 2", {"bidirectional"}, {}, {}, one_direction},
  };
}

}  // namespace sw::accounts
