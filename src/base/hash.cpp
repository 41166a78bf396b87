#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace sw {

struct Hasher::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  State() {
    if (xxh3 == nullptr) {
      throw std::bad_alloc();
    }
    XXH3_128bits_reset(xxh3);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh3); }
};

std::uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Digest hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_text(Digest digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&& other) noexcept = default;
Hasher& Hasher::operator=(Hasher&& other) noexcept = default;

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size());
}

Digest Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3);
  return {hash.high64, hash.low64};
}

}  // namespace sw
