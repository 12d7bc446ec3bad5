#include "penstock/run/bench/transport_benchmark.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/run/bench/internal/round_trips.h"
#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/threads/rank_threads.h"
#include "penstock/run/transport/in_process/in_process_hub.h"
#include "penstock/run/transport/open_transport.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Extent kExtent{.num_stages = 2, .num_microbatches = 1};
constexpr MessageKey kThere{1, 0, Direction::Forward};
constexpr MessageKey kBack{0, 0, Direction::Backward};
constexpr auto kDeadline = std::chrono::minutes(1);

// As an activation of a training step.
at::Tensor make_payload(const RoundTripOptions& options) {
  return at::ones({options.bytes / 4}).requires_grad_() * 1;
}

// One rank's part in messages that go there and back.
class Player {
 public:
  Player(Transport& transport, int rank, const RoundTripOptions& options)
      : transport_(transport),
        rank_(rank),
        reads_(options.reads),
        payload_(make_payload(options)) {}

  void play(std::int64_t first_step, int count) {
    for (std::int64_t step = first_step; step < first_step + count; ++step) {
      transport_.begin_step(step);
      if (rank_ == 0) {
        transport_.expect(1, kBack);
        send(1, kThere);
        receive(1, kBack);
      } else {
        transport_.expect(0, kThere);
        receive(0, kThere);
        send(0, kBack);
      }
      received_.clear();  // as late as a stage does, which needs it for its own part
    }
  }

 private:
  void send(int to_rank, MessageKey key) {
    sent_.emplace_back(payload_);
    transport_.send(to_rank, key, sent_);
  }
  void receive(int from_rank, MessageKey key) {
    transport_.receive(from_rank, key, received_);
    if (reads_) received_.front().toTensor().sum();
  }

  Transport& transport_;
  int rank_;
  bool reads_;
  at::Tensor payload_;
  Message sent_;
  Message received_;
};

class TransportRoundTrips final : public RoundTrips {
 public:
  // `num_steps` goes on counting for all that use the transport. Without a core, not pinned.
  TransportRoundTrips(Transport& transport, int rank, const RoundTripOptions& options,
                      std::int64_t& num_steps, std::optional<int> core)
      : player_(transport, rank, options), num_steps_(num_steps), core_(core) {}

  void run(int count) override {
    const PinnedThread pinned(core_);
    player_.play(num_steps_, count);
    num_steps_ += count;
  }

 private:
  Player player_;
  std::int64_t& num_steps_;
  std::optional<int> core_;
};

// Both ranks are threads of this process.
class ThreadRoundTrips final : public RoundTrips {
 public:
  explicit ThreadRoundTrips(const RoundTripOptions& options)
      : wait_(wait_policy_for(2, kDeadline)),
        hub_(2, kExtent, wait_),
        first_(hub_.endpoint(0), 0, options),
        second_(hub_.endpoint(1), 1, options),
        threads_(2, {.wait = wait_, .pins_threads = options.pins_threads}) {}

  void run(int count) override {
    threads_.run([&](int rank) { (rank == 0 ? first_ : second_).play(0, count); });
  }

 private:
  WaitPolicy wait_;
  InProcessHub hub_;
  Player first_;
  Player second_;
  RankThreads threads_;
};

// A copy there and a copy back, as far as one thread can tell. As between two ranks, each has a
// payload of its own and a place of its own that it goes to, so that caches hold as much.
class Copies final : public RoundTrips {
 public:
  explicit Copies(const RoundTripOptions& options)
      : reads_(options.reads), there_(options), back_(options) {}

  void run(int count) override {
    for (int index = 0; index < count; ++index) {
      copy(there_);
      copy(back_);
    }
  }

 private:
  struct Hop {
    explicit Hop(const RoundTripOptions& options)
        : from(make_payload(options)), to(make_payload(options)) {}

    at::Tensor from;
    at::Tensor to;
  };

  void copy(const Hop& hop) const {
    std::memcpy(hop.to.data_ptr(), hop.from.data_ptr(), hop.from.nbytes());
    if (reads_) hop.to.sum();
  }

  bool reads_;
  Hop there_;
  Hop back_;
};

// Takes no part in what the other rank measures alone.
class Nothing final : public RoundTrips {
 public:
  void run(int /*count*/) override {}
};

// Everything that connects the two ranks, for messages of all sizes.
class Ways {
 public:
  explicit Ways(World& world) : world_(world), shared_memory_(open(TransportKind::SharedMemory)) {
    if (!has_gloo()) return;
    bare_ = std::make_unique<BareGloo>(world, "bench/bare");
    gloo_ = open(TransportKind::OwnBackend, bare_->maker());
  }

  using Cell = std::pair<std::string, std::unique_ptr<RoundTrips>>;

  std::vector<Cell> cells(const RoundTripOptions& options) {
    std::vector<Cell> cells;
    if (world_.rank() == 0) {
      cells.emplace_back("memcpy", std::make_unique<Copies>(options));
      cells.emplace_back("threads", std::make_unique<ThreadRoundTrips>(options));
    } else {
      cells.emplace_back("memcpy", std::make_unique<Nothing>());
      cells.emplace_back("threads", std::make_unique<Nothing>());
    }
    cells.emplace_back("shm",
                       over(*shared_memory_, options, shared_memory_steps_, core_of(options)));
    if (gloo_ == nullptr) return cells;
    cells.emplace_back("gloo", over(*gloo_, options, gloo_steps_, std::nullopt));
    cells.emplace_back("c10d", bare_->round_trips(options));
    return cells;
  }

  // Has both ranks begin at the same time.
  void meet() { over(*shared_memory_, {.bytes = 4}, shared_memory_steps_, std::nullopt)->run(1); }

 private:
  std::unique_ptr<Transport> open(TransportKind kind, const MakeBackend& make_backend = {}) {
    return open_transport(
        world_, world_.everyone(),
        {.kind = kind, .extent = kExtent, .make_backend = make_backend, .deadline = kDeadline});
  }
  std::unique_ptr<RoundTrips> over(Transport& transport, const RoundTripOptions& options,
                                   std::int64_t& num_steps, std::optional<int> core) const {
    return std::make_unique<TransportRoundTrips>(transport, world_.rank(), options, num_steps,
                                                 core);
  }
  // Gloo has a thread of its own, which is better off without.
  std::optional<int> core_of(const RoundTripOptions& options) const {
    if (!options.pins_threads || cores_.size() < 2) return std::nullopt;
    return cores_[static_cast<std::size_t>(world_.rank())];
  }

  World& world_;
  std::vector<int> cores_ = allowed_cores();
  std::unique_ptr<Transport> shared_memory_;
  std::unique_ptr<BareGloo> bare_;
  std::unique_ptr<Transport> gloo_;  // over the connections of bare_
  std::int64_t shared_memory_steps_ = 0;
  std::int64_t gloo_steps_ = 0;
};

// So many that the clock does not matter, the same on both ranks.
int round_trips_per_sample(std::int64_t bytes) {
  constexpr std::int64_t kBytesPerSample = std::int64_t{64} << 20U;
  constexpr std::int64_t kMost = 100;
  return static_cast<int>(std::clamp<std::int64_t>(kBytesPerSample / bytes, 1, kMost));
}

// The value that so many quarters of the others are below.
double quartile_of(std::vector<double> seconds, std::size_t quarters) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[(seconds.size() - 1) * quarters / 4];
}

double median_of(std::vector<double> seconds) {
  return quartile_of(std::move(seconds), 2);
}

// What a message takes, one way.
struct Cost {
  double time = 0;  // seconds
  // Of this thread, for a send and a receive: what one message takes at both ends.
  double processor_time = 0;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of round trips from when this rank begins.
Cost time_round_trips(RoundTrips& cell, int count) {
  const double processor_begin = processor_seconds();
  const Clock::time_point begin = Clock::now();
  cell.run(count);
  const std::chrono::duration<double> time = Clock::now() - begin;
  return {.time = time.count() / (2 * count),
          .processor_time = (processor_seconds() - processor_begin) / count};
}

// Of round trips that both ranks begin together.
Cost measure_round_trips(Ways& ways, RoundTrips& cell, int count) {
  ways.meet();
  return time_round_trips(cell, count);
}

RoundTrips* find_cell(const std::vector<Ways::Cell>& cells, const std::string& way) {
  const auto found = std::find_if(cells.begin(), cells.end(),
                                  [&](const Ways::Cell& cell) { return cell.first == way; });
  return found == cells.end() ? nullptr : found->second.get();
}

// Round trips follow one another without a meeting in between, for what other ways leave behind in
// caches and in the scheduler is more than what is measured.
HeaderCost measure_header(RoundTrips& ours, RoundTrips& bare, std::int64_t bytes, int num_pairs) {
  std::vector<double> differences;
  std::vector<double> processor_differences;
  for (int pair = 0; pair < num_pairs; ++pair) {
    // Whoever comes second may find things warmer, so both do by turns.
    const bool is_bare_first = pair % 2 == 0;
    const Cost first = time_round_trips(is_bare_first ? bare : ours, 1);
    const Cost second = time_round_trips(is_bare_first ? ours : bare, 1);
    const double sign = is_bare_first ? 1 : -1;
    differences.push_back(sign * (second.time - first.time));
    processor_differences.push_back(sign * (second.processor_time - first.processor_time));
  }
  return {.bytes = bytes,
          .num_pairs = num_pairs,
          .median = median_of(differences),
          .low_quartile = quartile_of(differences, 1),
          .high_quartile = quartile_of(differences, 3),
          .processor_time = median_of(processor_differences)};
}

// Throws ArgumentError for messages that would use up the memory of this machine.
void require_room_for(std::int64_t bytes) {
  constexpr std::int64_t kCopies = 20;  // of one message, in both processes, on all ways
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes <= memory / kCopies) return;
  throw ArgumentError(
      fmt::format("messages of {} bytes are too large for this machine, which has {} bytes of "
                  "memory, for up to {} copies of a message; use at most {}",
                  bytes, memory, kCopies, memory / kCopies / 4 * 4));
}

}  // namespace

TransportBenchmarkOptions resolve(TransportBenchmarkOptions options) {
  constexpr std::int64_t kLargest = std::int64_t{16} << 20U;
  if (options.sizes.empty()) {
    for (std::int64_t size = 4; size <= kLargest; size *= 4) options.sizes.push_back(size);
  }
  for (const std::int64_t size : options.sizes) {
    if (size < 4 || size % 4 != 0) {
      throw ArgumentError(fmt::format("messages have a multiple of 4 bytes, not {}", size));
    }
    require_room_for(size);
  }
  if (options.num_samples < 1) {
    throw ArgumentError(
        fmt::format("the number of samples must be at least 1, but is {}", options.num_samples));
  }
  return options;
}

TransportBenchmark run_transport_benchmark(World& world, const TransportBenchmarkOptions& options,
                                           const std::function<void(double)>& progress) {
  const std::vector<std::int64_t> sizes = resolve(options).sizes;
  if (world.size() != 2) {
    throw ArgumentError(fmt::format("messages go between 2 ranks, not {}", world.size()));
  }
  Ways ways(world);
  TransportBenchmark result;
  std::vector<TransportSeries>& series = result.series;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const auto cells = ways.cells(
        {.bytes = sizes[index], .reads = options.reads, .pins_threads = options.pins_threads});
    const int count = round_trips_per_sample(sizes[index]);
    std::vector<std::vector<double>> seconds(cells.size());
    for (int sample = -1; sample < options.num_samples; ++sample) {  // the first one warms up
      for (std::size_t cell = 0; cell < cells.size(); ++cell) {
        // The others have had the caches to themselves meanwhile.
        measure_round_trips(ways, *cells[cell].second, 1);
        const Cost cost = measure_round_trips(ways, *cells[cell].second, count);
        if (sample >= 0) seconds[cell].push_back(cost.time);
      }
    }
    series.resize(cells.size());
    for (std::size_t cell = 0; cell < cells.size(); ++cell) {
      series[cell].way = cells[cell].first;
      series[cell].times.push_back(
          {.bytes = sizes[index],
           .median = median_of(seconds[cell]),
           .best = *std::min_element(seconds[cell].begin(), seconds[cell].end())});
    }
    if (RoundTrips* const ours = find_cell(cells, "gloo"); ours != nullptr) {
      result.header.push_back(measure_header(*ours, *find_cell(cells, "c10d"), sizes[index],
                                             options.num_samples * count));
    }
    if (progress) progress(static_cast<double>(index + 1) / static_cast<double>(sizes.size()));
  }
  if (world.rank() != 0) return {};
  return result;
}

}  // namespace penstock
