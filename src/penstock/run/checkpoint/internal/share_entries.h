#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock {

using EntrySizes = std::map<std::string, std::uint64_t>;  // bytes by name

// Who writes what: every entry goes to one of the writers that hold it, so that all have about
// equally many bytes. Same input, same result, in every process.
std::vector<std::vector<std::string>> share_entries(const std::vector<EntrySizes>& writers);

}  // namespace penstock
