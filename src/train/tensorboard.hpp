#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "train/metrics.hpp"

/// TensorBoard event files (events.out.tfevents.*): TFRecords of Event messages, written by hand.
namespace sw {

/// CRC-32C (Castagnoli), as TFRecord and iSCSI (RFC 3720) use it.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// Length, its masked checksum, the bytes, theirs.
[[nodiscard]] std::string tfrecord(std::string_view bytes);

/// An Event message of one step with its scalars.
[[nodiscard]] std::string scalar_event(double wall_time, std::int64_t step,
                                       const std::vector<std::pair<std::string, double>>& scalars);

/// The event file of one stretch of a run; a resumed run adds another one.
class EventsFile {
 public:
  EventsFile(Files& files, const std::filesystem::path& run_folder);
  void add(const StepMetrics& metrics);

 private:
  std::unique_ptr<OutputFile> file_;
};

}  // namespace sw
