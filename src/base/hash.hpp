#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// Checksums (XXH3, xxHash 0.8). They find damage and accidents; they are no defence against
/// someone who means to forge a file.
namespace sw {

[[nodiscard]] std::uint64_t hash64(std::span<const std::byte> bytes);

/// A 128-bit checksum.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

[[nodiscard]] Digest hash128(std::span<const std::byte> bytes);
[[nodiscard]] inline Digest hash128(std::string_view text) {
  return hash128(std::as_bytes(std::span(text)));
}
/// 32 hexadecimal digits.
[[nodiscard]] std::string to_text(Digest digest);

/// The 128-bit checksum of bytes that arrive in parts, however they are cut.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&& other) noexcept;
  Hasher& operator=(Hasher&& other) noexcept;
  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far; more may follow.
  [[nodiscard]] Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sw
