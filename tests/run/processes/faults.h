#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "penstock/run/transport/open_transport.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {

// Where a rank comes to harm, in its second step.
struct Fault {
  static constexpr int kAfterTheList = -1;

  int rank = 0;
  int step = 0;  // position in its list
  int signal = SIGKILL;
};

// Processes that train until something happens.
struct FaultyRun {
  int num_ranks = 3;
  std::function<std::string(const TrainingOptions&)> train = {};  // what each of them does
  TransportKind transport = TransportKind::Automatic;
  std::chrono::nanoseconds deadline = {};
  double bound_s = 0;  // from the fault to the error on every other rank
  std::string replay_path = {};
  bool is_on_hosts = false;  // each rank on its own, as far as it can tell
  // At a port the store dies with rank 0, in a file it does not.
  Meeting meeting = Meeting::Port;
};

// Whether this process may let ranks believe that.
bool can_have_hosts();

// What came of it.
struct Tally {
  int num_cases = 0;
  int num_survivors = 0;
  int num_named = 0;     // survivors that threw an error with the right name
  int num_in_time = 0;   // of those, within the bound
  double slowest = 0;    // seconds
  std::string text;      // of the last survivor
  std::string problems;  // what was not as it should be, a line each
};

// Trains in processes once for each fault, a few at a time, and lets it happen. Every other rank is
// expected to throw an error that names the rank it happened to.
Tally inject(const FaultyRun& run, const std::vector<Fault>& faults);

// Where a rank comes to harm while ranks connect.
struct ConnectFault {
  enum class Place { BeforeWatch, InWatch, InTransport };

  int rank = 0;
  int signal = SIGKILL;
  Place place = Place::BeforeWatch;
  std::chrono::microseconds moment = {};  // after it has come there
};

struct ConnectRun {
  std::chrono::milliseconds deadline = {};  // of the world, too
  double bound_s = 0;                       // as that of FaultyRun
  bool is_on_hosts = false;
};

// The same for ranks that connect over Gloo and meet at a port.
Tally inject_while_connecting(const ConnectRun& run, const std::vector<ConnectFault>& faults);

// Expects what inject() does, and prints the counts.
void expect_all_named(const char* what, const Tally& tally);

}  // namespace penstock
