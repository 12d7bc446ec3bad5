#include <iostream>

#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/csv.h"

int main() {
  const penstock::Schedule order = penstock::make_1f1b({.num_ranks = 2, .num_microbatches = 2});
  std::cout << write_csv(lower(order, {.sharding = false}));
}
