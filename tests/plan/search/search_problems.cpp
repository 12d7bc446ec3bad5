#include "tests/plan/search/search_problems.h"

#include "penstock/plan/simulator/profile.h"

namespace penstock::testing {

const std::vector<PaperRow>& paper_rows() {
  static const std::vector<PaperRow> rows = {
      {"p8_m24_h2304", 8, 24, 18.522, 18.086, 9.337, 0.601, 2304, 24, 0.2431, 0.0433},
      {"p8_m32_h2304", 8, 32, 18.513, 18.086, 9.331, 0.626, 2304, 24, 0.1985, 0.0039},
      {"p8_m24_h4096", 8, 24, 29.718, 29.444, 19.927, 0.527, 4096, 32, 0.2347, 0.0029},
      {"p16_m48_h5120", 16, 48, 11.347, 11.248, 8.132, 0.377, 5120, 40, 0.2552, 0.0066},
      {"p32_m96_h6144", 32, 96, 10.419, 10.207, 7.715, 0.408, 6144, 48, 0.2646, 0.0038},
  };
  return rows;
}

SearchOptions paper_options(const PaperRow& row) {
  constexpr std::int64_t kSequenceLength = 1024;
  CostModel costs =
      CostModel::uniform({.forward = from_milliseconds(row.forward_ms, "F"),
                          .input_backward = from_milliseconds(row.input_backward_ms, "I"),
                          .weight_backward = from_milliseconds(row.weight_backward_ms, "W"),
                          .hop = from_milliseconds(row.hop_ms, "hop")});
  StageCost& stage = costs.stages.front();
  stage.activation_bytes =
      std::int64_t{34} * row.hidden_size + std::int64_t{5} * row.num_heads * kSequenceLength;
  stage.weight_gradient_bytes = std::int64_t{32} * row.hidden_size;
  SearchOptions options;
  options.num_ranks = row.num_ranks;
  options.num_microbatches = row.num_microbatches;
  options.costs = costs;
  options.memory_limit_bytes = std::int64_t{2} * row.num_ranks * stage.activation_bytes;
  options.placement = SearchPlacement::Looped;
  return options;
}

StageCost stage_cost(const SmallCost& cost) {
  return {.forward = Duration(cost.forward),
          .input_backward = Duration(cost.input_backward),
          .weight_backward = Duration(cost.weight_backward),
          .full_backward = Duration(cost.input_backward + cost.weight_backward),
          .activation_bytes = cost.activation_bytes,
          .weight_gradient_bytes = cost.weight_gradient_bytes};
}

}  // namespace penstock::testing
