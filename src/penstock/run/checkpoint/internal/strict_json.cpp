#include "penstock/run/checkpoint/internal/strict_json.h"

#include <set>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"

namespace penstock {

nlohmann::json parse_strict_json(std::string_view text, int deepest, const std::string& source) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> open;  // names so far in every object that is not closed
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= deepest) {
          throw CheckpointError(fmt::format(
              "{}: is more than {} levels deep; not a file of this kind", source, deepest));
        }
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        open.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!open.back().insert(parsed.get_ref<const std::string&>()).second) {
          throw CheckpointError(fmt::format("{}: has the name {} twice", source,
                                            quote(parsed.get_ref<const std::string&>(), 80)));
        }
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    throw CheckpointError(
        fmt::format("{}: is not a JSON text, at byte {} of {}", source, error.byte, text.size()));
  } catch (const Json::out_of_range&) {
    throw CheckpointError(fmt::format("{}: has a number that is too large", source));
  }
}

}  // namespace penstock
