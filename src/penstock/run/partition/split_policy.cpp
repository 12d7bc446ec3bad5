#include "penstock/run/partition/split_policy.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/run/partition/internal/pieces.h"
#include "penstock/run/partition/internal/time_pieces.h"

namespace penstock {
namespace {

void require_stages(int num_stages) {
  if (num_stages < 1) {
    throw ArgumentError(fmt::format("a model has at least 1 stage, not {}", num_stages));
  }
}

// The best stages by these costs, and where they begin.
CutPositions balance_pieces(const std::vector<Piece>& pieces, std::vector<LayerCost> costs,
                            int num_stages, PolicyReport* report) {
  std::vector<BalancedStage> stages = balance_layers(costs, {.num_stages = num_stages});
  CutPositions cuts;
  for (std::size_t stage = 1; stage < stages.size(); ++stage) {
    cuts.push_back(pieces[static_cast<std::size_t>(stages[stage].first_layer)].first);
  }
  if (report != nullptr) *report = {std::move(costs), std::move(stages)};
  return cuts;
}

std::vector<LayerCost> costs_of(const std::vector<Piece>& pieces) {
  std::vector<LayerCost> costs;
  for (const Piece& piece : pieces) {
    costs.push_back({.name = piece.name, .bytes = piece.parameter_bytes});
  }
  return costs;
}

}  // namespace

SplitPolicy split_by_parameters(int num_stages, std::shared_ptr<PolicyReport> report) {
  require_stages(num_stages);
  return [num_stages, report](const CapturedModel& model, const Microbatch& /*example*/) {
    const std::vector<Piece> pieces = find_pieces(model, num_stages);
    std::vector<LayerCost> costs = costs_of(pieces);
    // One nanosecond per byte: what is balanced are times.
    for (LayerCost& cost : costs) cost.forward = Duration(cost.bytes);
    CutPositions cuts = balance_pieces(pieces, std::move(costs), num_stages, report.get());
    if (report == nullptr) return cuts;
    for (LayerCost& cost : report->pieces) cost.forward = Duration::zero();
    for (BalancedStage& stage : report->stages) stage.forward = Duration::zero();
    return cuts;
  };
}

SplitPolicy split_by_time(int num_stages, std::shared_ptr<PolicyReport> report,
                          const TimePolicyOptions& options) {
  require_stages(num_stages);
  return [num_stages, report, options](const CapturedModel& model, const Microbatch& example) {
    const std::vector<Piece> pieces = find_pieces(model, num_stages);
    std::vector<LayerCost> costs = costs_of(pieces);
    time_pieces(model, cuts_between(pieces), example, options.num_runs, costs);
    return balance_pieces(pieces, std::move(costs), num_stages, report.get());
  };
}

std::string to_string(const PolicyReport& report) {
  const auto total =
      std::accumulate(report.stages.begin(), report.stages.end(), Duration::zero(),
                      [](Duration sum, const BalancedStage& stage) { return sum + stage.time(); });
  std::string text = fmt::format("stage {:>12} {:>12} {:>8} {:>14}  modules\n", "forward ms",
                                 "backward ms", "share", "bytes");
  for (std::size_t index = 0; index < report.stages.size(); ++index) {
    const BalancedStage& stage = report.stages[index];
    const std::string& first = report.pieces[static_cast<std::size_t>(stage.first_layer)].name;
    const std::string& last = report.pieces[static_cast<std::size_t>(stage.end_layer - 1)].name;
    const std::string share =
        total == Duration::zero()
            ? "-"
            : fmt::format("{:.1f} %", 100.0 * static_cast<double>(stage.time().count()) /
                                          static_cast<double>(total.count()));
    text += fmt::format("{:>5} {:>12.4g} {:>12.4g} {:>8} {:>14}  {}\n", index,
                        to_milliseconds(stage.forward), to_milliseconds(stage.backward), share,
                        stage.bytes, first == last ? first : fmt::format("{} ... {}", first, last));
  }
  return text;
}

}  // namespace penstock
