#include "cost_options.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/plan/simulator/profile.h"
#include "schedule_io.h"

namespace penstock {
namespace {

std::int64_t to_bytes(double bytes) {
  constexpr double kMost = 9e15;
  if (!(bytes >= 0) || bytes > kMost) {
    throw ArgumentError(
        fmt::format("--bytes: expected sizes from 0 to {:.0f}, found {}", kMost, bytes));
  }
  return std::llround(bytes);
}

}  // namespace

CostModel CostFlags::resolve(int stages_per_rank) const {
  CostModel model;
  if (!profile_path.empty()) {
    model = read_profile(read_input(profile_path), profile_path).costs;
    if (model.stages.empty()) {
      throw Error(fmt::format("{}: the profile has layers but no stages; see 'penstock balance'",
                              profile_path));
    }
  } else {
    const double share = per_rank ? stages_per_rank : 1;
    const std::vector<double> times = parse_numbers(costs, 3);
    model =
        CostModel::uniform({.forward = from_milliseconds(times[0] / share, "--costs: F"),
                            .input_backward = from_milliseconds(times[1] / share, "--costs: I"),
                            .weight_backward = from_milliseconds(times[2] / share, "--costs: W"),
                            .hop = from_milliseconds(hop, "--hop")});
    if (have_sizes()) {
      const std::vector<double> sizes = parse_numbers(bytes, 2);
      model.stages.front().activation_bytes = to_bytes(sizes[0] / share);
      model.stages.front().weight_gradient_bytes = to_bytes(sizes[1] / share);
    }
    model.overlap_factor = overlap_factor;
  }
  model.sends = sends == "rendezvous" ? SendMode::Rendezvous : SendMode::Buffered;
  return model;
}

void add_cost_options(CLI::App& command, CostFlags& flags) {
  auto* costs =
      expect_numbers(command.add_option("--costs", flags.costs,
                                        "milliseconds that F, I and W take on each stage"),
                     "1,1,1")
          ->type_name("F,I,W")
          ->capture_default_str();
  auto* hop = expect_numbers(
                  command.add_option("--hop", flags.hop, "milliseconds from rank to rank"), "0.5")
                  ->type_name("T")
                  ->capture_default_str();
  auto* bytes =
      expect_numbers(
          command.add_option("--bytes", flags.bytes,
                             "bytes a stage keeps per microbatch from F to I, and from I to W "
                             "(default: memory is counted in activations)"),
          "1,0")
          ->type_name("MB,MW");
  auto* overlap =
      expect_numbers(command.add_option("--overlap-factor", flags.overlap_factor,
                                        "an OVERLAP_F_B takes this times the sum of its parts"),
                     "0.9")
          ->type_name("X")
          ->capture_default_str();
  auto* per_rank = command.add_flag("--per-rank", flags.per_rank,
                                    "--costs and --bytes are for all stages of a rank together");
  expect_choice(command.add_option("--sends", flags.sends,
                                   "buffered: never wait; rendezvous: wait for the receive"),
                {"buffered", "rendezvous"})
      ->capture_default_str();
  command.add_option("--profile", flags.profile_path, "read all costs, stage by stage, from JSON")
      ->excludes(costs)
      ->excludes(hop)
      ->excludes(bytes)
      ->excludes(overlap)
      ->excludes(per_rank)
      ->type_name("FILE");
}

}  // namespace penstock
