#include "train/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <span>

namespace sw {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    table[byte] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

/// TFRecord's mask, so that a checksum of bytes that hold checksums stays a good one.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

template <typename Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Word); ++i) {
    bytes += static_cast<char>((word >> (8 * i)) & 0xffU);
  }
  return bytes;
}

// Protocol buffers: a key is field number << 3 | wire type.
constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kFixed64 = 1;
constexpr std::uint32_t kBytes = 2;
constexpr std::uint32_t kFixed32 = 5;

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) {
    bytes += static_cast<char>((value & 0x7fU) | 0x80U);
  }
  bytes += static_cast<char>(value);
  return bytes;
}

std::string key(std::uint32_t field, std::uint32_t type) { return varint(field << 3U | type); }

std::string bytes_field(std::uint32_t field, std::string_view bytes) {
  return fmt::format("{}{}{}", key(field, kBytes), varint(bytes.size()), bytes);
}

std::string event_head(double wall_time) {
  return key(1, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time));
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void write_record(OutputFile& file, const std::string& event) {
  const std::string record = tfrecord(event);
  file.write(std::as_bytes(std::span(record)));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = (crc >> 8U) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  }
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(std::uint64_t{bytes.size()});
  return fmt::format("{}{}{}{}", length, little_endian(masked(crc32c(length))), bytes,
                     little_endian(masked(crc32c(bytes))));
}

std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    summary += bytes_field(1, bytes_field(1, tag) + key(2, kFixed32) + little_endian(bits));
  }
  return event_head(wall_time) + key(2, kVarint) + varint(static_cast<std::uint64_t>(step)) +
         bytes_field(5, summary);
}

EventsFile::EventsFile(Files& files, const std::filesystem::path& run_folder) {
  const auto microseconds = static_cast<std::int64_t>(unix_seconds() * 1e6);
  // TensorBoard reads the files of a folder in the order of their names.
  file_ = files.create(run_folder / fmt::format("events.out.tfevents.{:016}.shardwright.{}",
                                                microseconds, ::getpid()));
  write_record(*file_, event_head(unix_seconds()) + bytes_field(3, "brain.Event:2"));
}

void EventsFile::add(const StepMetrics& metrics) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"learning_rate", metrics.learning_rate},
      {"tokens_per_second", metrics.tokens_per_second},
      {"step_seconds", metrics.step_seconds},
      {"time/communication", metrics.communication_seconds},
      {"time/exposed_communication", metrics.exposed_communication_seconds},
      {"time/wait", metrics.wait_seconds},
      {"consumed_samples", static_cast<double>(metrics.consumed_samples)},
      {"skipped_steps", static_cast<double>(metrics.skipped_steps)},
  };
  const std::pair<const char*, const std::optional<double>&> where_known[] = {
      {"loss/train", metrics.loss},
      {"loss/balance", metrics.balance_loss},
      {"loss/z", metrics.z_loss},
      {"loss/validation", metrics.validation_loss},
      {"gradient_norm", metrics.gradient_norm},
      {"mfu", metrics.mfu},
  };
  for (const auto& [tag, value] : where_known) {
    if (value.has_value()) {
      scalars.emplace_back(tag, *value);
    }
  }
  if (metrics.experts.has_value()) {
    scalars.emplace_back("experts/hottest", metrics.experts->hottest);
    scalars.emplace_back("experts/idle", static_cast<double>(metrics.experts->idle));
  }
  write_record(*file_, scalar_event(unix_seconds(), metrics.step, scalars));
}

}  // namespace sw
