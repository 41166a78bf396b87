#pragma once

#include <filesystem>

#include "train/session.hpp"

/// What each rank planned and measured, as a file in the run folder that lives until the ranks have
/// ended.
namespace sw {

void write_rank_account(const std::filesystem::path& path, const Session& session,
                        std::int64_t steps);

/// Puts the ranks' files together: ledger.json, and trace.json of the last step. Returns whether
/// planned = measured: calls, bytes and peaks, as integers.
bool merge_rank_accounts(const std::filesystem::path& run_folder,
                         const std::vector<std::filesystem::path>& ranks);

}  // namespace sw
