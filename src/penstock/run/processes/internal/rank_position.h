#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/progress_board.h"

namespace penstock {

// Where a rank stands, as it tells the others.
struct RankPosition {
  bool is_known = false;           // false: nothing was heard
  bool has_left = false;           // it has ended its work and is gone
  bool is_in_step = false;         // of a pipeline
  bool is_waiting = false;         // for a message that its next action or the exchange needs
  int finished = 0;                // actions of its list in this step
  int num_steps = 0;               // begun so far
  ExchangeProgress exchange = {};  // after its list

  friend bool operator==(const RankPosition&, const RankPosition&) = default;
};

std::string to_text(const RankPosition& position);

// The inverse; a position that is not known for any other text.
RankPosition parse_position(const std::string& text);

// A position as it is told to the others.
struct ToldPosition {
  RankPosition position = {};
  std::chrono::milliseconds age = {};  // for how long the rank had been there by then
};

std::string to_text(const ToldPosition& told);
ToldPosition parse_told_position(const std::string& text);

// Another rank that `rank` of `program`, which waits at `position`, cannot do without.
struct PeerWait {
  int rank = -1;
  int send_step = -1;  // at which that rank sends what is waited for; -1: it has to receive
  std::string text;    // "to send the activations of microbatch 3", "to take ..."
};
std::vector<PeerWait> waits_of(const Schedule& program, int rank, const RankPosition& position);

// Says of every rank of `program` what it does and whom it waits for, a line each. `names` are the
// ranks as messages have them, such as "rank 2 (pid 4711 on a)".
std::string describe_positions(const Schedule& program, const std::vector<RankPosition>& positions,
                               const std::vector<std::string>& names);

// The same of one rank, when nothing is known of the others.
std::string describe_alone(const Schedule& program, int rank, const RankPosition& position,
                           const std::vector<std::string>& names);

// Who keeps the others waiting: the ranks that do not answer, or else those that wait for nobody.
// One sentence, for the head of the report.
std::string blame(const Schedule& program, const std::vector<RankPosition>& positions,
                  const std::vector<std::string>& names);

// The program and the positions as JSON; docs/formats/replay.md has the fields.
std::string write_replay(const Schedule& program, const std::vector<RankPosition>& positions,
                         const std::string& reason);

// Whole or not at all. Says nothing if it cannot: that the ranks have stalled is what matters.
void write_replay_file(const std::string& path, const std::string& replay);

}  // namespace penstock
