#pragma once

#include <filesystem>
#include <string>

namespace penstock {

// The end of a message about the checkpoint at `path` that is damaged: "; remove ... to go on from
// the checkpoint before it", or nothing if there is none before it.
std::string way_out_of_damage(const std::filesystem::path& path);

}  // namespace penstock
