#include "penstock/run/train/run_figures.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/plan/simulator/simulate.h"
#include "penstock/run/optimizer/optimizer_state.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

std::int64_t state_bytes(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  std::int64_t bytes = 0;
  for (const StateEntry& entry : state_of(optimizer, parameter)) {
    if (const auto* tensor = std::get_if<at::Tensor>(&entry.value)) {
      bytes += static_cast<std::int64_t>(tensor->nbytes());
    }
  }
  return bytes;
}

// By stage, what its parameters take. One that several stages of the process use counts once.
Json stage_bytes(const PipelineStage& stage, const torch::optim::Optimizer& optimizer) {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t state = 0;
  for (const at::Tensor& parameter : stage.parameters()) {
    parameters += static_cast<std::int64_t>(parameter.nbytes());
    if (!parameter.requires_grad()) continue;
    gradients += static_cast<std::int64_t>(parameter.nbytes());
    state += state_bytes(optimizer, parameter);
  }
  return Json{{"stage", stage.index()},
              {"parameters", parameters},
              {"gradients", gradients},
              {"optimizer", state}};
}

// What one process knows. Its times count from the start of the machine, which processes of one
// host agree on.
std::string own_figures(const RunPipeline& pipeline, const torch::optim::Optimizer& optimizer) {
  const Schedule& program = pipeline.timeline().program();
  const Placement placement = placement_of(program, extent_of(program).num_stages);
  const std::vector<ParameterBytes> gathered = pipeline.parameter_bytes();
  const bool has_all_ranks = pipeline.world() == nullptr;
  Json json;
  json["replica"] = pipeline.position().index;
  json["step"] = pipeline.meter().median_makespan().count();
  json["begin"] = pipeline.timeline().begin().time_since_epoch().count();
  json["costs"] = write_profile(pipeline.profile().profile(pipeline.stages()));
  for (const auto& stage : pipeline.stages()) {
    json["stages"].push_back(stage_bytes(*stage, optimizer));
    const int rank = placement.rank_of(stage->index());
    const ParameterBytes& bytes = gathered[has_all_ranks ? static_cast<std::size_t>(rank) : 0];
    json["gathered"][std::to_string(rank)] = bytes.peak_gathered + bytes.peak_whole_gradients;
    Json& times = json["times"][std::to_string(rank)];
    if (!times.empty()) continue;  // the rank has several stages
    for (const ActionTime& time : pipeline.timeline().times()[static_cast<std::size_t>(rank)]) {
      times.push_back({time.start.count(), time.end.count()});
    }
  }
  return json.dump();
}

std::vector<Json> all_figures(const RunPipeline& pipeline,
                              const torch::optim::Optimizer& optimizer) {
  std::vector<Json> all;
  for (const std::string& text :
       exchange_in_run(pipeline.processes(), "run figures", own_figures(pipeline, optimizer))) {
    Json one = Json::parse(text);
    if (one.at("replica") == 0) all.push_back(std::move(one));
  }
  return all;
}

// The clock readings of all ranks, from the earliest begin of the step on.
std::vector<std::vector<ActionTime>> joined_times(const std::vector<Json>& all, int num_ranks) {
  std::int64_t begin = all.front().at("begin");
  for (const Json& one : all) begin = std::min(begin, one.at("begin").get<std::int64_t>());
  std::vector<std::vector<ActionTime>> times(static_cast<std::size_t>(num_ranks));
  for (const Json& one : all) {
    const Duration shift(one.at("begin").get<std::int64_t>() - begin);
    for (const auto& [rank, list] : one.at("times").items()) {
      for (const Json& pair : list) {
        times[std::stoul(rank)].push_back({.start = shift + Duration(pair[0].get<std::int64_t>()),
                                           .end = shift + Duration(pair[1].get<std::int64_t>())});
      }
    }
  }
  return times;
}

CostModel joined_costs(const std::vector<Json>& all) {
  std::map<int, StageCost> costs;
  for (const Json& one : all) {
    const Profile profile = read_profile(one.at("costs").get<std::string>(), "measured costs");
    for (std::size_t index = 0; index < profile.costs.stages.size(); ++index) {
      costs[one.at("stages")[index].at("stage")] = profile.costs.stages[index];
    }
  }
  CostModel model;
  for (const auto& [stage, cost] : costs) model.stages.push_back(cost);
  return model;
}

std::vector<RankMemory> memory_of(const std::vector<Json>& all, const RunFigures& figures) {
  std::vector<RankMemory> ranks(figures.program.ranks.size());
  const Placement placement =
      placement_of(figures.program, static_cast<int>(figures.costs.stages.size()));
  for (const Json& one : all) {
    for (const Json& stage : one.at("stages")) {
      const int index = stage.at("stage");
      RankMemory& memory = ranks[static_cast<std::size_t>(placement.rank_of(index))];
      memory.stages.push_back(index);
      memory.parameter_bytes += stage.at("parameters").get<std::int64_t>();
      memory.gradient_bytes += stage.at("gradients").get<std::int64_t>();
      memory.optimizer_bytes += stage.at("optimizer").get<std::int64_t>();
    }
    for (const auto& [rank, bytes] : one.at("gathered").items()) {
      ranks[std::stoul(rank)].gathered_bytes = bytes;
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::sort(ranks[rank].stages.begin(), ranks[rank].stages.end());
    ranks[rank].activation_bytes = std::max<std::int64_t>(
        0, figures.measured.ranks[rank].peak_bytes - ranks[rank].parameter_bytes);
  }
  return ranks;
}

}  // namespace

RunFigures gather_figures(const RunPipeline& pipeline, const torch::optim::Optimizer& optimizer) {
  const std::vector<Json> all = all_figures(pipeline, optimizer);
  RunFigures figures;
  figures.schedule = pipeline.plan().name;
  figures.program = pipeline.timeline().program();
  figures.costs = joined_costs(all);
  figures.measured = measured_timeline(
      figures.program, joined_times(all, figures.program.num_ranks()), figures.costs);
  figures.predicted = simulate(figures.program, figures.costs);
  for (const Json& one : all) {
    figures.step = std::max(figures.step, Duration(one.at("step").get<std::int64_t>()));
  }
  figures.ranks = memory_of(all, figures);
  return figures;
}

std::vector<ReportEntry> report_entries(const RunFigures& figures) {
  return {make_measured_entry(figures.schedule + ", measured", figures.program, figures.costs,
                              figures.measured),
          make_report_entry(figures.schedule + ", predicted", figures.program, figures.costs)};
}

}  // namespace penstock
