#include "penstock/run/checkpoint/checkpoint_group.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

namespace penstock {

CheckpointGroup checkpoint_group(World& world, const Group& group, const ExchangeOptions& options) {
  CheckpointGroup result{.rank = group.rank_of(world.rank())};
  if (group.size() == 1) return result;
  const auto previous = std::make_shared<std::string>();
  result.exchange = [&world, group, options, previous](const std::string& value) {
    const std::string name = fmt::format("checkpoint/{}", group.name);
    const std::string topic = fmt::format("{}/{}", name, world.next_count(name));
    std::vector<std::string> told = world.exchange(group, topic, value, options);
    // Who has told this has read what was told before, so the store need not keep it.
    if (!previous->empty()) world.forget(*previous);
    *previous = topic;
    return told;
  };
  return result;
}

CheckpointGroup checkpoint_group(World& world, const Group& group,
                                 std::shared_ptr<const ProcessRanks> ranks) {
  return checkpoint_group(
      world, group,
      {.timeout = kSavePatience, .look = [ranks = std::move(ranks)] { ranks->require_healthy(); }});
}

}  // namespace penstock
