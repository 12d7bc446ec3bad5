#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace penstock {

// Checkpoints lie in one folder of a run, each in a folder of its own: step-00000010 holds the
// state after 10 steps. Whatever has that name is whole; what is being written or removed has
// another one. One run at a time may save into a folder.

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

// All of them, by step; none if there is no such folder. Throws CheckpointError if it cannot be
// read.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// The one with the most steps. Its manifest is read: a damaged one is an error that names it, not a
// reason to go on silently with an older one.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace penstock
