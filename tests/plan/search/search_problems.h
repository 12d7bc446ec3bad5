#pragma once

#include <string>
#include <vector>

#include "penstock/plan/search/search.h"

namespace penstock::testing {

// One of the models profiled in arXiv 2401.10241, with the bubbles that the paper reports.
struct PaperRow {
  std::string name;
  int num_ranks;
  int num_microbatches;
  double forward_ms;
  double input_backward_ms;
  double weight_backward_ms;
  double hop_ms;
  int hidden_size;
  int num_heads;
  double bubble_1f1b;
  double bubble_zb_2p;
};
const std::vector<PaperRow>& paper_rows();

// One stage per rank and room for 2p microbatches, as the paper's ZB-2p has it.
SearchOptions paper_options(const PaperRow& row);

// The costs of one stage, with B as I and W together.
struct SmallCost {
  int forward;
  int input_backward;
  int weight_backward;
  int activation_bytes = 1;
  int weight_gradient_bytes = 0;
};
StageCost stage_cost(const SmallCost& cost);

}  // namespace penstock::testing
