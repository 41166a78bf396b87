#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"

/// The safetensors format: eight bytes of header length (little endian), a JSON header with name,
/// type, shape and byte range of every tensor, then the bytes, without a hole.
namespace sw {

/// Longest header that is read or written; the reference implementation has the same cap.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

/// "F32"; the name of an element type in this format.
[[nodiscard]] std::string_view safetensors_name(DType dtype);

/// A tensor inside a mapped file. The bytes are little endian, row major, and may lie at any
/// address: copy them, do not cast them. The format's BOOL reads as UInt8 holding 0 and 1.
struct TensorView {
  DType dtype = DType::Float32;
  Shape shape;
  std::span<const std::byte> bytes;
};

using TensorViews = std::map<std::string, TensorView, std::less<>>;

/// What a header says, with views into the file's bytes.
struct SafetensorsContent {
  TensorViews tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// Reads a whole file's bytes. Every field is checked before it is used: a file that is not exactly
/// right is refused with a DataError that names `where` and the tensor. Allocates in proportion to
/// the header that is really there.
[[nodiscard]] SafetensorsContent parse_safetensors(std::span<const std::byte> file,
                                                   std::string_view where);

/// A memory-mapped file; views live as long as it does (a move keeps them valid).
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  [[nodiscard]] const TensorViews& tensors() const { return content_.tensors; }
  [[nodiscard]] const auto& metadata() const { return content_.metadata; }
  /// The whole file, header included.
  [[nodiscard]] std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
  SafetensorsContent content_;
};

/// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
};
/// Of its data.
[[nodiscard]] std::int64_t bytes_of(const TensorDeclaration& tensor);

/// Writes a file as a stream: the header at once, from what was declared, then the tensors' bytes
/// in the order of declaration. Holds no tensor.
class SafetensorsWriter {
 public:
  struct Finished {
    std::int64_t bytes = 0;
    Digest digest;  ///< of the whole file
  };

  /// DataError when the header would be longer than a reader accepts, or names are not unique.
  SafetensorsWriter(Files& files, const std::filesystem::path& path,
                    std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// The next bytes of `name`, which must be the tensor that is due; any number of calls each.
  void write(std::string_view name, std::span<const std::byte> part);
  /// Whether every declared byte has been written.
  [[nodiscard]] bool complete() const { return current_ == tensors_.size(); }
  /// Syncs and closes; every declared byte must have been written.
  Finished finish();

 private:
  void append(std::span<const std::byte> bytes);
  void skip_complete();

  std::string where_;
  std::vector<TensorDeclaration> tensors_;
  std::unique_ptr<OutputFile> file_;
  Hasher hasher_;
  std::int64_t written_ = 0;
  std::size_t current_ = 0;        ///< the tensor that is due
  std::int64_t current_left_ = 0;  ///< its bytes still to come
};

}  // namespace sw
