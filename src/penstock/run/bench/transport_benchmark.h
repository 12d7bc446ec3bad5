#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/run/world/world.h"

namespace penstock {

struct TransportBenchmarkOptions {
  std::vector<std::int64_t> sizes = {};  // of messages, in bytes, multiples of 4; empty: 4 to 16 Mi
  int num_samples = 30;                  // of every cell of the table
  bool reads = false;                    // the receiver reads every element before it answers
  bool pins_threads = false;             // each rank to a core; not with Gloo
};

// With the sizes filled in. Throws ArgumentError on sizes and counts that do not fit.
TransportBenchmarkOptions resolve(TransportBenchmarkOptions options);

struct TransportTime {
  std::int64_t bytes = 0;
  double median = 0;  // seconds from sender to receiver: half of a round trip
  double best = 0;
};

// One way for bytes to get from here to there.
struct TransportSeries {
  std::string way;
  std::vector<TransportTime> times;  // by size
};

// What a message over Gloo takes longer with a header than without: round trips of both take turns
// one by one, and the differences of neighbours are what counts, so that noise does not.
struct HeaderCost {
  std::int64_t bytes = 0;
  int num_pairs = 0;
  double median = 0;        // seconds one way
  double low_quartile = 0;  // of the differences
  double high_quartile = 0;
  // The same in processor time of the threads that send and receive, at both ends together: median.
  double processor_time = 0;
};

struct TransportBenchmark {
  std::vector<TransportSeries> series;
  std::vector<HeaderCost> header;  // by size; empty without Gloo
};

// Round trips between the two ranks of `world`, which must be on one host and both call this, with
// the same options. The ways, as far as this Penstock has them:
//   memcpy   one copy, in one thread
//   threads  the transport between threads, both in the process of rank 0
//   shm      the transport over shared memory
//   gloo     the transport over Gloo
//   c10d     bare sends and receives of libtorch's Gloo, of memory that is there already
// They take turns sample by sample, so that a busy machine disturbs all alike. Empty on rank 1.
// `progress` is told the share that is done.
TransportBenchmark run_transport_benchmark(World& world, const TransportBenchmarkOptions& options,
                                           const std::function<void(double done)>& progress = {});

}  // namespace penstock
