#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace penstock {

// A JSON text whose objects have no name twice, and that is at most `deepest` levels deep. Throws
// CheckpointError, beginning with `source`.
nlohmann::json parse_strict_json(std::string_view text, int deepest, const std::string& source);

}  // namespace penstock
