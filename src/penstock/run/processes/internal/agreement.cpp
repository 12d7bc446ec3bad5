#include "penstock/run/processes/internal/agreement.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/text.h"

namespace penstock {
namespace {

// FNV-1a: the same on every machine.
constexpr std::uint64_t kHashSeed = 14695981039346656037U;

std::uint64_t add_to_hash(std::uint64_t hash, std::string_view text) {
  constexpr std::uint64_t kPrime = 1099511628211U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * kPrime;
  return hash;
}

}  // namespace

Agreement make_agreement(const Schedule& program, Extent extent, const std::string& model) {
  Agreement agreement{.version = PENSTOCK_VERSION, .model = model, .extent = extent, .lists = {}};
  for (const std::vector<Action>& actions : program.ranks) {
    std::uint64_t hash = kHashSeed;
    for (const Action& action : actions) hash = add_to_hash(hash, to_string(action) + ",");
    agreement.lists.push_back(hash);
  }
  return agreement;
}

std::uint64_t fingerprint_of(const Agreement& agreement) {
  std::uint64_t hash = kHashSeed;
  for (const std::uint64_t list : agreement.lists)
    hash = add_to_hash(hash, fmt::format("{:x},", list));
  return hash;
}

std::string to_text(const Agreement& agreement) {
  const nlohmann::json json = {{"version", agreement.version},
                               {"model", agreement.model},
                               {"stages", agreement.extent.num_stages},
                               {"microbatches", agreement.extent.num_microbatches},
                               {"lists", agreement.lists}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Agreement parse_agreement(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  Agreement agreement;
  agreement.version = json.value("version", "");
  agreement.model = json.value("model", "");
  agreement.extent = {json.value("stages", 0), json.value("microbatches", 0)};
  agreement.lists = json.value("lists", std::vector<std::uint64_t>());
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
  if (first == found.lists.end()) return {};
  return fmt::format("has another schedule: its actions of rank {} are different",
                     first - found.lists.begin());
}

}  // namespace penstock
