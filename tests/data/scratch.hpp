#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "data/corpus.hpp"

namespace sw {

/// A folder that is gone with its test.
class Scratch {
 public:
  Scratch() {
    // In memory where there is such a place: thousands of small files, and syncing costs nothing.
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path root =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (root / "sw-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("no temporary folder");
    }
    folder_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }

  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    return content.str();
  }

  /// Files of this folder as training data for a model of `vocabulary` ids.
  [[nodiscard]] CorpusSource source(std::vector<std::string> patterns,
                                    std::int64_t vocabulary = 259) const {
    return {.key = "data.train",
            .patterns = std::move(patterns),
            .base = folder_,
            .vocabulary = vocabulary,
            .verify = Verify::Everything};
  }

 private:
  std::filesystem::path folder_;
};

/// One sample as a value.
struct Row {
  std::vector<std::int32_t> tokens, labels, positions, documents;
  friend bool operator==(const Row&, const Row&) = default;
};

inline Row read_row(const Corpus& corpus, std::int64_t sample) {
  const auto length = static_cast<std::size_t>(corpus.sequence_length());
  // Filled with nonsense, so that an element that is not written shows.
  const std::vector<std::int32_t> nonsense(length, -77);
  Row row{nonsense, nonsense, nonsense, nonsense};
  corpus.read(sample, row.tokens, row.labels, row.positions, row.documents);
  return row;
}

/// The message of the error that `function` throws; fails the test when it throws none.
template <typename Kind, typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace sw
