#include "penstock/run/partition/split_policy.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

double ratio_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// From the first module of one piece to the last of another: "a ... b" and "b ... c" make "a ...
// c".
std::string name_of_range(const std::string& first, const std::string& last) {
  constexpr std::string_view kTo = " ... ";
  const std::string begin = first.substr(0, first.find(kTo));
  const std::size_t to = last.rfind(kTo);
  const std::string end = to == std::string::npos ? last : last.substr(to + kTo.size());
  return begin == end ? begin : fmt::format("{}{}{}", begin, kTo, end);
}

std::vector<LayerCost> costs_of(const std::vector<Piece>& pieces) {
  std::vector<LayerCost> costs;
  costs.reserve(pieces.size());
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

SplitPolicy split_by_costs(int num_stages, std::vector<LayerCost> pieces,
                           std::shared_ptr<PolicyReport> report) {
  require_stages(num_stages);
  return [num_stages, costs = std::move(pieces), report = std::move(report)](
             const CapturedModel& model, const Microbatch& /*example*/) {
    const std::vector<Piece> found = find_pieces(model, num_stages);
    if (found.size() != costs.size()) {
      throw ArgumentError(fmt::format(
          "the model has {}, but there are costs of {}",
          counted(static_cast<long long>(found.size()), "piece", "pieces"), costs.size()));
    }
    return balance_pieces(found, costs, num_stages, report.get());
  };
}

std::string to_string(const PolicyReport& report) {
  Duration total{};
  std::int64_t total_bytes = 0;
  for (const BalancedStage& stage : report.stages) {
    total += stage.time();
    total_bytes += stage.bytes;
  }
  const bool has_times = total > Duration::zero();
  const auto time_text = [has_times](Duration time) {
    return has_times ? fmt::format("{:.4g}", to_milliseconds(time)) : "-";
  };
  std::string text = fmt::format("stage {:>12} {:>12} {:>8} {:>14}  modules\n", "forward ms",
                                 "backward ms", "share", "bytes");
  for (std::size_t index = 0; index < report.stages.size(); ++index) {
    const BalancedStage& stage = report.stages[index];
    const double share = has_times ? ratio_of(stage.time().count(), total.count())
                                   : ratio_of(stage.bytes, total_bytes);
    text += fmt::format(
        "{:>5} {:>12} {:>12} {:>6.1f} % {:>14}  {}\n", index, time_text(stage.forward),
        time_text(stage.backward), 100 * share, stage.bytes,
        name_of_range(report.pieces[static_cast<std::size_t>(stage.first_layer)].name,
                      report.pieces[static_cast<std::size_t>(stage.end_layer - 1)].name));
  }
  return text;
}

}  // namespace penstock
