#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace sw::testing {

/// A test with a folder of its own, gone afterwards.
class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() {
    std::string name = (std::filesystem::temp_directory_path() / "sw-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw DataError(name + ": could not create a scratch folder");
    }
    folder_ = name;
  }
  ~ScratchTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline void write_file(const std::filesystem::path& path, std::string_view content) {
  const auto file = real_files().create(path);
  file->write(bytes_of(content));
  file->close();
}

inline std::string read_file(const std::filesystem::path& path) {
  return read_whole_file(path, std::int64_t{1} << 40);
}

/// What a DataError says, or "no error".
template <typename Action>
std::string data_error_of(const Action& action) {
  try {
    action();
    return "no error";
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace sw::testing
