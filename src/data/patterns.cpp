#include "data/patterns.hpp"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <system_error>

#include "base/error.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

/// A path in which no character is a wildcard.
std::string escaped(const std::string& path) {
  std::string text;
  for (const char letter : path) {
    if (std::string_view("*?[]\\").find(letter) != std::string_view::npos) {
      text.push_back('\\');
    }
    text.push_back(letter);
  }
  return text;
}

std::vector<fs::path> expand(const std::string& pattern, const fs::path& base) {
  const bool absolute = fs::path(pattern).is_absolute();
  const std::string whole = absolute ? pattern : escaped((base / "").string()) + pattern;
  glob_t found{};
  const int status = ::glob(whole.c_str(), GLOB_NOSORT, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, &::globfree);
  if (status == GLOB_NOSPACE) {
    throw std::bad_alloc();
  }
  std::vector<fs::path> files(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  std::ranges::sort(files, {}, &fs::path::native);
  return files;
}

std::vector<fs::path> files_of(const std::string& key, const std::string& pattern,
                               const fs::path& base) {
  if (pattern.find("**") != std::string::npos) {
    throw ConfigError(fmt::format(
        "{}: '**' in \"{}\" is not in this version; name each folder with '*'", key, pattern));
  }
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::exists(base / pattern, ignored)) {
    files.push_back(base / pattern);  // a name may hold characters that look like wildcards
  } else {
    files = expand(pattern, base);
  }
  if (files.empty()) {
    throw ConfigError(fmt::format("{}: \"{}\" matches no file in {}", key, pattern,
                                  fs::absolute(base).lexically_normal().string()));
  }
  for (const fs::path& file : files) {
    if (fs::is_directory(file, ignored)) {
      throw ConfigError(fmt::format("{}: {} is a folder; name its files, as in \"{}/*\"", key,
                                    file.string(), pattern));
    }
  }
  return files;
}

}  // namespace

std::vector<fs::path> files_matching(const std::string& key,
                                     const std::vector<std::string>& patterns,
                                     const fs::path& base) {
  std::vector<fs::path> all;
  std::map<fs::path, std::string> seen;
  for (const std::string& pattern : patterns) {
    for (fs::path& file : files_of(key, pattern, base)) {
      std::error_code ignored;
      const auto [where, fresh] = seen.emplace(fs::weakly_canonical(file, ignored), pattern);
      if (!fresh) {
        throw ConfigError(
            fmt::format("{}: {} is named twice, by \"{}\" and by \"{}\"; name it once", key,
                        file.string(), where->second, pattern));
      }
      all.push_back(std::move(file));
    }
  }
  return all;
}

}  // namespace sw
