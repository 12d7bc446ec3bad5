#include "tests/run/transport/transport_ways.h"

#include <memory>
#include <string_view>
#include <thread>

#include "penstock/run/transport/in_process/in_process_hub.h"
#include "tests/run/support/rank_processes.h"
#include "tests/run/support/store_backend.h"

namespace penstock {
namespace {

void run_over(TransportKind kind, const Ranks& ranks, std::chrono::nanoseconds deadline) {
  run_in_forks(static_cast<int>(ranks.size()), [&](const WorldOptions& options) {
    World world(options);
    const std::unique_ptr<Transport> transport = open_transport(world, world.everyone(),
                                                                {.kind = kind,
                                                                 .extent = kExtent,
                                                                 .fingerprint = 7,
                                                                 .make_backend = store_backend(),
                                                                 .deadline = deadline});
    ranks[static_cast<std::size_t>(world.rank())](*transport);
  });
}

}  // namespace

void run_on_threads(const Ranks& ranks, std::chrono::nanoseconds deadline) {
  InProcessHub hub(static_cast<int>(ranks.size()), kExtent,
                   wait_policy_for(static_cast<int>(ranks.size()), deadline));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { ranks[rank](hub.endpoint(static_cast<int>(rank))); });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_over_shared_memory(const Ranks& ranks, std::chrono::nanoseconds deadline) {
  run_over(TransportKind::SharedMemory, ranks, deadline);
}

void run_over_gloo(const Ranks& ranks, std::chrono::nanoseconds deadline) {
  run_over(TransportKind::Gloo, ranks, deadline);
}

void run_over_own_backend(const Ranks& ranks, std::chrono::nanoseconds deadline) {
  run_over(TransportKind::OwnBackend, ranks, deadline);
}

Message receive_patiently(Transport& transport, int from_rank, MessageKey key) {
  for (;;) {
    try {
      Message message;
      transport.receive(from_rank, key, message);
      return message;
    } catch (const TransportError& error) {
      if (!std::string_view(error.what()).starts_with("waited ")) throw;
    }
  }
}

}  // namespace penstock
