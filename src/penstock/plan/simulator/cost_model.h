#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

using Duration = std::chrono::nanoseconds;  // exact: sums of idle time must come out even

// What one stage costs per microbatch, and what it keeps in memory.
struct StageCost {
  Duration forward{};
  Duration input_backward{};
  Duration weight_backward{};
  Duration full_backward{};  // B; usually input_backward + weight_backward
  Duration unshard{};        // per UNSHARD
  Duration reduce_grad{};    // per REDUCE_GRAD

  std::int64_t activation_bytes = 0;       // from the start of F to the end of I or B
  std::int64_t weight_gradient_bytes = 0;  // from the end of I, or the middle of B, to the end
  std::int64_t parameter_bytes = 0;        // all the time
  std::int64_t output_bytes = 0;           // the message of SEND_F
  std::int64_t input_gradient_bytes = 0;   // the message of SEND_B

  friend bool operator==(const StageCost&, const StageCost&) = default;
};

enum class SendMode {
  Buffered,    // a send never holds its rank up
  Rendezvous,  // a send holds its rank up until the receive is posted
};

// What a schedule costs on a machine. A value from another rank arrives `hop_latency` after it was
// sent, plus the time its bytes take on the wire; a wire, one per ordered pair of ranks, carries
// one message at a time. Wires, gathers and reductions run beside the computation.
struct CostModel {
  std::vector<StageCost> stages;  // one per stage, or a single one that holds for all

  Duration hop_latency{};
  double bytes_per_second = 0;  // of a wire; 0: bytes take no time
  double overlap_factor = 1;    // an OVERLAP_F_B takes this times the sum of its parts
  SendMode sends = SendMode::Buffered;

  // F, I and W take the given times on every stage, B takes I + W, and hops take `hop`. Every
  // microbatch counts one byte from F to I or B, and none after.
  struct Uniform {
    Duration forward{1000};
    Duration input_backward{1000};
    Duration weight_backward{1000};
    Duration hop{};
  };
  static CostModel uniform(const Uniform& costs);
  static CostModel uniform() { return uniform({}); }

  const StageCost& stage(int index) const {
    return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(index)];
  }
  Duration compute_time(const Action& action) const;
  Duration wire_time(const Action& send) const;

  friend bool operator==(const CostModel&, const CostModel&) = default;
};

// Throws ArgumentError on negative values, on such that 64 bits cannot hold when `num_terms` of
// them are added up, and unless there is one cost, or one for each of `num_stages`.
void require_costs(const CostModel& costs, int num_stages, double num_terms);

// The same for what is added up in a run of `program`: all its actions, on every rank.
void require_costs(const CostModel& costs, const Schedule& program);

// In milliseconds, exact, without the unit and without trailing zeros: "18.522".
std::string milliseconds_text(Duration time);

// "F 1 ms, I 1 ms, W 1 ms, hop 0 ms", with a range where stages differ, and whatever else is not as
// CostModel::uniform() sets it.
std::string describe_costs(const CostModel& costs);

}  // namespace penstock
