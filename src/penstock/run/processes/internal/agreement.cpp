#include "penstock/run/processes/internal/agreement.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/fingerprint.h"
#include "penstock/base/text.h"
#include "penstock/base/version.h"

namespace penstock {
namespace {

// The first stage that both know and that is not the same; -1 if there is none.
int different_stage(const std::vector<std::uint64_t>& one,
                    const std::vector<std::uint64_t>& other) {
  for (std::size_t stage = 0; stage < std::min(one.size(), other.size()); ++stage) {
    const bool are_known = one[stage] != 0 && other[stage] != 0;
    if (are_known && one[stage] != other[stage]) return static_cast<int>(stage);
  }
  return -1;
}

}  // namespace

Agreement make_agreement(const Schedule& program, const FabricOptions& options,
                         const std::string& model) {
  Agreement agreement{.version = version(),
                      .model = model,
                      .extent = options.extent,
                      .lists = {},
                      .layouts = options.stage_layouts,
                      .keywords = options.keywords};
  for (const std::vector<Action>& actions : program.ranks) {
    Fingerprint list;
    for (const Action& action : actions) list.add(to_string(action) + ",");
    agreement.lists.push_back(list.value());
  }
  return agreement;
}

std::uint64_t fingerprint_of(const Agreement& agreement) {
  Fingerprint program;
  for (const std::uint64_t list : agreement.lists) program.add(fmt::format("{:x},", list));
  return program.value();
}

std::string to_text(const Agreement& agreement) {
  const nlohmann::json json = {{"version", agreement.version},
                               {"model", agreement.model},
                               {"stages", agreement.extent.num_stages},
                               {"microbatches", agreement.extent.num_microbatches},
                               {"lists", agreement.lists},
                               {"layouts", agreement.layouts},
                               {"keywords", agreement.keywords}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Agreement parse_agreement(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  Agreement agreement;
  if (json.is_object() && json.contains("version") && json["version"].is_string()) {
    agreement.version = json["version"];
  }
  if (agreement.version != version()) return agreement;  // whose rest may mean anything
  agreement.model = json.value("model", "");
  agreement.extent = {json.value("stages", 0), json.value("microbatches", 0)};
  agreement.lists = json.value("lists", std::vector<std::uint64_t>());
  agreement.layouts = json.value("layouts", std::vector<std::uint64_t>());
  agreement.keywords = json.value("keywords", std::set<std::string>());
  return agreement;
}

std::string difference(const Agreement& expected, const Agreement& found) {
  if (found.version != expected.version) {
    return fmt::format("runs Penstock {} instead of {}", quote(found.version),
                       quote(expected.version));
  }
  if (found.model != expected.model) {
    return fmt::format("has the model {} instead of {}", quote(found.model, 200),
                       quote(expected.model, 200));
  }
  if (found.extent.num_stages != expected.extent.num_stages) {
    return fmt::format("has {} instead of {}", counted(found.extent.num_stages, "stage", "stages"),
                       expected.extent.num_stages);
  }
  if (found.extent.num_microbatches != expected.extent.num_microbatches) {
    return fmt::format("has {} instead of {}",
                       counted(found.extent.num_microbatches, "microbatch", "microbatches"),
                       expected.extent.num_microbatches);
  }
  if (found.lists.size() != expected.lists.size()) {
    return fmt::format("has a schedule for {} instead of {}",
                       counted(static_cast<long long>(found.lists.size()), "rank", "ranks"),
                       expected.lists.size());
  }
  const auto [first, other] =
      std::mismatch(found.lists.begin(), found.lists.end(), expected.lists.begin());
  if (first != found.lists.end()) {
    return fmt::format("has another schedule: its actions of rank {} are different",
                       first - found.lists.begin());
  }
  if (const int stage = different_stage(found.layouts, expected.layouts); stage >= 0) {
    return fmt::format(
        "has another model: the names, types or shapes of the tensors of its stage {} are "
        "different",
        stage);
  }
  return {};
}

}  // namespace penstock
