#include "penstock/plan/generators/registry.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {
namespace {

constexpr int kAny = ScheduleFamily::kAnyNumber;

// Entries of all lists together; a lowered schedule of this size takes about 16 GB.
constexpr double kMaxCells = 1 << 27;

constexpr std::array kFamilies = {
    ScheduleFamily{.name = "ForwardOnly",
                   .summary = "all forwards, no backward: inference",
                   .make = make_forward_only},
    ScheduleFamily{
        .name = "GPipe", .summary = "all forwards, then all backwards", .make = make_gpipe},
    ScheduleFamily{.name = "1F1B",
                   .summary = "one forward, one backward: at most p live microbatches",
                   .make = make_1f1b},
    ScheduleFamily{.name = "LoopedBFS",
                   .summary = "GPipe over several stages per rank, breadth first",
                   .max_stages_per_rank = kAny,
                   .default_stages_per_rank = 2,
                   .make = make_looped_bfs},
    ScheduleFamily{.name = "Interleaved1F1B",
                   .summary = "1F1B over several stages per rank: bubble divided by v",
                   .max_stages_per_rank = kAny,
                   .default_stages_per_rank = 2,
                   .make = make_interleaved_1f1b},
    ScheduleFamily{.name = "InterleavedZeroBubble",
                   .summary = "interleaved, weight gradients fill the bubble",
                   .max_stages_per_rank = kAny,
                   .default_stages_per_rank = 2,
                   .make = make_interleaved_zero_bubble},
    ScheduleFamily{.name = "ZB-H1",
                   .summary = "zero bubble within the memory of 1F1B: a third of its bubble",
                   .make = make_zb_h1},
    ScheduleFamily{.name = "ZB-H2",
                   .summary = "zero bubble with up to 2p - 1 live microbatches: no idle slot",
                   .make = make_zb_h2},
    ScheduleFamily{.name = "ZBVZeroBubble",
                   .summary = "zero bubble in a V placement, with the memory of 1F1B",
                   .alias = "ZBV",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .make = make_zbv_zero_bubble},
    ScheduleFamily{.name = "DualPipeV",
                   .summary = "V placement, forwards and backwards overlapped in pairs",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .make = make_dual_pipe_v},
    ScheduleFamily{.name = "V-Half",
                   .summary = "V placement with half of the memory of 1F1B",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .make = make_v_half},
    ScheduleFamily{.name = "V-Min",
                   .summary = "V placement with a third of the memory of 1F1B",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .make = make_v_min},
    ScheduleFamily{.name = "VShaped",
                   .summary = "for tests: one microbatch at a time down and up a V",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .num_ranks = 2,
                   .make = make_v_shaped},
    ScheduleFamily{.name = "Unbalanced",
                   .summary = "for tests: three stages on rank 0, two on rank 1",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 3,
                   .default_stages_per_rank = 3,
                   .num_ranks = 2,
                   .make = make_unbalanced},
    ScheduleFamily{.name = "WithW",
                   .summary = "for tests: hand-placed weight gradients, two stages per rank",
                   .min_stages_per_rank = 2,
                   .max_stages_per_rank = 2,
                   .default_stages_per_rank = 2,
                   .num_ranks = 2,
                   .make = make_with_w},
};

// Users of torch.distributed.pipelining know the schedules by class name: Schedule1F1B.
std::string_view without_class_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "Schedule";
  const bool is_class_name =
      name.size() > kPrefix.size() && same_name(name.substr(0, kPrefix.size()), kPrefix);
  return is_class_name ? name.substr(kPrefix.size()) : name;
}

std::string allowed_stages_per_rank(const ScheduleFamily& family) {
  if (family.max_stages_per_rank == kAny)
    return fmt::format("{} or more", family.min_stages_per_rank);
  if (family.min_stages_per_rank == family.max_stages_per_rank) {
    return fmt::format("exactly {}", family.min_stages_per_rank);
  }
  return fmt::format("{} to {}", family.min_stages_per_rank, family.max_stages_per_rank);
}

void require_positive(int count, std::string_view noun) {
  if (count < 1) {
    throw ArgumentError(fmt::format("the number of {} must be at least 1, not {}", noun, count));
  }
}

// A compute order is a grid of ranks x steps: three actions per stage and microbatch, and idle
// slots for the way down the stages and the ranks and back.
void require_holdable(const ScheduleShape& shape) {
  const double num_ranks = shape.num_ranks;
  const double num_stages = num_ranks * shape.stages_per_rank;
  const double num_steps =
      3.0 * shape.stages_per_rank * shape.num_microbatches + num_stages + 3 * num_ranks;
  if (num_ranks * num_steps > kMaxCells) {
    throw ArgumentError(
        fmt::format("{} ranks x {} stages per rank x {} microbatches is too large: {:.3g} actions, "
                    "of at most {:.3g}",
                    shape.num_ranks, shape.stages_per_rank, shape.num_microbatches,
                    num_ranks * num_steps, kMaxCells));
  }
}

}  // namespace

std::span<const ScheduleFamily> schedule_families() {
  return kFamilies;
}

const ScheduleFamily& schedule_family(std::string_view name) {
  const std::string_view wanted = without_class_prefix(name);
  const auto* found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const ScheduleFamily& family) {
        return same_name(family.name, wanted) ||
               (!family.alias.empty() && same_name(family.alias, wanted));
      });
  if (found != kFamilies.end()) return *found;

  std::vector<std::string_view> names;
  names.reserve(kFamilies.size());
  for (const ScheduleFamily& family : kFamilies) names.push_back(family.name);
  const std::string_view nearest = nearest_name(wanted, names);
  throw ArgumentError(
      nearest.empty()
          ? fmt::format("unknown schedule {}; known are {}", quote(name), fmt::join(names, ", "))
          : fmt::format("unknown schedule {}; did you mean {}?", quote(name), quote(nearest)));
}

Schedule make_schedule(std::string_view name, const ScheduleShape& shape) {
  return schedule_family(name).make(shape);
}

ScheduleShape resolve_shape(std::string_view name, const ScheduleShape& shape) {
  const ScheduleFamily& family = schedule_family(name);
  ScheduleShape resolved = shape;
  if (shape.stages_per_rank == ScheduleShape::kScheduleDefault) {
    resolved.stages_per_rank = family.default_stages_per_rank;
  }
  require_positive(resolved.num_ranks, "ranks");
  require_positive(resolved.num_microbatches, "microbatches");
  require_positive(resolved.stages_per_rank, "stages per rank");
  if (family.num_ranks != kAny && resolved.num_ranks != family.num_ranks) {
    throw ArgumentError(fmt::format("{} is defined for {} ranks only, not {}", family.name,
                                    family.num_ranks, resolved.num_ranks));
  }
  const bool too_few = resolved.stages_per_rank < family.min_stages_per_rank;
  const bool too_many =
      family.max_stages_per_rank != kAny && resolved.stages_per_rank > family.max_stages_per_rank;
  if (too_few || too_many) {
    throw ArgumentError(fmt::format("{} needs {} per rank, not {}", family.name,
                                    family.max_stages_per_rank == 1
                                        ? "exactly 1 stage"
                                        : allowed_stages_per_rank(family) + " stages",
                                    resolved.stages_per_rank));
  }
  require_holdable(resolved);
  return resolved;
}

}  // namespace penstock
