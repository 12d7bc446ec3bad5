#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "run_flags.h"

namespace penstock {

// The latest checkpoint in the folder of --checkpoint. Throws Error if there is none.
std::filesystem::path checkpoint_to_use(const RunFlags& flags);

// Takes over, from the checkpoint at `path`, what makes the model and the data of the run that has
// written it; what was given on the command line stays.
void apply_checkpoint(CLI::App& command, const std::filesystem::path& path);

// Whether the run that has written the checkpoint at `path` has read the same data; also if that is
// not known, because another program has written it.
bool has_same_data(const std::filesystem::path& path, const Dataset& data);

// The tokens that the model of the checkpoint at `path` takes, so that it can be used where its
// data is not; nothing if another program has written it. Throws Error if the model takes none, or
// if the checkpoint is too old to know.
std::optional<TokenShape> tokens_of_checkpoint(const std::filesystem::path& path);

// What a checkpoint keeps of the options, for apply_checkpoint(), and of the data.
std::string checkpoint_note(const CLI::App& command, const Dataset& data);

}  // namespace penstock
