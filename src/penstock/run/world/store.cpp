#include "penstock/run/world/store.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <future>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "penstock/base/seconds.h"
#include "penstock/base/text.h"
#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/world/internal/host.h"
#include "penstock/run/world/internal/keys.h"
#include "penstock/run/world/internal/local_token.h"
#include "penstock/run/world/internal/store_sockets.h"
#include "penstock/run/world/world_options.h"

namespace penstock {
namespace {

// The server does not end while it waits for the rest of a message. It is left to the end of the
// process then.
template <typename Owner>
void let_go_of_server(Owner owner) {
  constexpr auto kPatience = std::chrono::seconds(1);
  auto end = std::make_shared<std::promise<void>>();
  const std::future<void> is_over = end->get_future();
  std::thread([owner = std::move(owner), end]() mutable {
    owner = Owner();
    end->set_value();
  }).detach();
  is_over.wait_for(kPatience);
}

[[noreturn]] void throw_no_answer(const WorldOptions& options, const std::string& cause) {
  throw WorldError(fmt::format(
      "rank {} got no answer at {}:{}, where it looks for rank 0 ({}); rank 0 may have ended, and "
      "its error says why, or another program has this port: choose another one for all ranks "
      "(MASTER_PORT)",
      options.rank, options.master_address, options.master_port, cause));
}

// Connects in a thread of its own, which is left behind if nobody takes the result: libtorch cannot
// be interrupted there. 1.13 leaves it to the kernel how long it tries, which is minutes, and 2.x
// waits without end for the first answer.
template <typename Connect>
auto connect_alone(Connect connect) {
  std::packaged_task<std::invoke_result_t<Connect>()> task(std::move(connect));
  auto store = task.get_future();
  std::thread(std::move(task)).detach();
  return store;
}

template <typename Pointer>
bool is_late(const std::future<Pointer>& store, const WorldOptions& options) {
  return store.wait_for(longest_answer(options.timeout)) == std::future_status::timeout;
}

// A server that has listened before and does not any more is gone.
enum class Server { MayComeLater, HasListened };

// Lets a client reach its server at once: 1.13 itself tries again only after a second.
StorePtr connect_to_master(const WorldOptions& options, Server server) {
  const Endpoint master{options.master_address, options.master_port};
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  if (server == Server::HasListened) {
    const std::string error = try_to_connect(master, deadline);
    if (!error.empty()) throw_no_answer(options, error);
  } else if (const std::string error = wait_for_listener(master, deadline); !error.empty()) {
    throw WorldError(fmt::format(
        "rank {} could not reach rank 0 at {} within {:.3g} s: {}; look whether rank 0 runs, and "
        "whether MASTER_ADDR and MASTER_PORT are those of its host",
        options.rank, to_string(master), seconds(options.timeout), error));
  }
  std::future<TcpStorePtr> store = connect_alone([options] {
    TcpStorePtr connection =
        make_tcp_store(options.master_address, options.master_port, false, options.timeout);
    greet(*connection);
    return connection;
  });
  if (is_late(store, options)) throw_no_answer(options, "connections are not accepted");
  try {
    return store.get();
  } catch (const std::exception& error) {
    throw_no_answer(options, cause_of(error));
  }
}

[[noreturn]] void throw_held_up(const WorldOptions& options, const std::string& cause) {
  throw WorldError(fmt::format(
      "rank {} listens on {}, but gets no answer there itself, so somebody may have "
      "sent half of a message to that port: {}",
      options.rank, to_string(Endpoint{options.master_address, options.master_port}), cause));
}

// Under which rank 0 says which attempt it is, counted from 1: a number that nobody has set is 0.
std::string attempt_key(const WorldOptions& options) {
  return fmt::format("penstock/{}/attempt", options.token);
}

// libtorch's server reads one message after the other, to its end. Whoever stops in the middle of
// one keeps all others waiting for this long; then the server hangs up on him.
constexpr auto kServerPatience = std::chrono::milliseconds(1500);

// Waits for an answer of the server at `port`. Who came before the limit was set has none; whoever
// holds it up is hung up on here. That must not be when the server has just done so itself: then it
// has read what others have said meanwhile, and they look like him.
void wait_for_server(const std::future<TcpStorePtr>& answer, int port) {
  constexpr auto kLongestHoldUp = std::chrono::seconds(2);
  static_assert(kLongestHoldUp > kServerPatience);
  if (answer.wait_for(kLongestHoldUp) == std::future_status::timeout && port != 0) {
    hang_up_on_silent_at_port(port);
  }
}

TcpStorePtr listen(const WorldOptions& options) {
  const Endpoint place{options.master_address, options.master_port};
  std::future<TcpStorePtr> listening = connect_alone([options] {
    return make_tcp_store(options.master_address, options.master_port, true, options.timeout);
  });
  wait_for_server(listening, options.master_port);
  if (is_late(listening, options)) {
    throw_held_up(options,
                  fmt::format("waited {:.3g} s", seconds(longest_answer(options.timeout))));
  }
  TcpStorePtr store;
  try {
    store = listening.get();
  } catch (const std::exception&) {
    throw WorldError(
        fmt::format("rank {} cannot listen on {}: the port is in use, or not allowed; choose "
                    "another one for all ranks (MASTER_PORT)",
                    options.rank, to_string(place)));
  }
  limit_waits_at_port(store->getPort(), kServerPatience);
  std::future<TcpStorePtr> first_answer = connect_alone([store, options] {
    greet(*store);
    store->add(attempt_key(options), options.attempt + 1);
    return store;
  });
  wait_for_server(first_answer, store->getPort());
  try {
    first_answer.get();
  } catch (const std::exception& error) {
    let_go_of_server(std::move(store));
    throw_held_up(options, cause_of(error));
  }
  return store;
}

// Values begin with a byte that says nothing: the server of 1.13 keeps an empty value back for a
// fifth of a second before it sends it.
constexpr std::uint8_t kFirstByte = '=';

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  std::vector<std::uint8_t> bytes(1 + text.size(), kFirstByte);
  std::copy(text.begin(), text.end(), bytes.begin() + 1);
  return bytes;
}

// The values of one job: their keys begin with its token, which others do not know.
StorePtr part_of_job(const StorePtr& root, const std::string& token, int attempt) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("penstock/{}/{}", token, attempt),
                                                root);
}

// Hosts start a job again one after another. So rank 0 may still be of an earlier attempt: its
// ranks are told not to wait any more, and the next rank 0 is waited for.
StorePtr connect_to_own_attempt(const WorldOptions& options) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  constexpr int kUnknown = -1;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto deadline = now() + options.timeout;
  // The earlier rank 0 may end at any moment.
  const auto is_final = [&] { return options.attempt == 0 || now() >= deadline; };
  WorldOptions rest = options;
  do {
    int found = kUnknown;
    try {
      StorePtr root = connect_to_master(rest, Server::MayComeLater);
      found = static_cast<int>(root->add(attempt_key(options), 0)) - 1;
      // Before the first failure there is no other attempt to be taken for.
      if (found == options.attempt || (found == kUnknown && options.attempt == 0)) return root;
      if (found != kUnknown && found < options.attempt) {
        part_of_job(root, options.token, found)
            ->set(kRefusal,
                  bytes_of(fmt::format("rank {} has failed and was started again", options.rank)));
      }
    } catch (const WorldError&) {
      if (is_final()) throw;
    } catch (const std::exception& error) {
      if (is_final()) throw_no_answer(options, cause_of(error));
    }
    if (found > options.attempt) {
      throw WorldError(fmt::format(
          "rank {} is of restart {} of the job, but rank 0 is of restart {} already; it can join "
          "when it is started again, too",
          options.rank, options.attempt, found));
    }
    std::this_thread::sleep_for(kPause);
    rest.timeout = std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - now()),
                            std::chrono::milliseconds(1));
  } while (now() < deadline);
  throw WorldError(fmt::format(
      "rank {} is of restart {} of the job, and waited {:.3g} s for rank 0 at {} to be started "
      "again, too; give the launchers of all hosts the same --max-restarts",
      options.rank, options.attempt, seconds(options.timeout),
      to_string(Endpoint{options.master_address, options.master_port})));
}

// 2.x locks the file here already, which a process may hold that is stopped.
StorePtr open_file(const WorldOptions& options) {
  std::future<StorePtr> store = connect_alone([options]() -> StorePtr {
    return c10::make_intrusive<c10d::FileStore>(options.store_file, options.size);
  });
  if (is_late(store, options)) throw WorldError(kSilentStore);
  return store.get();
}

StorePtr make_store(const WorldOptions& options) {
  if (!options.store_file.empty()) return open_file(options);
  if (options.size == 1) return c10::make_intrusive<c10d::HashStore>();
  if (options.rank == 0) return listen(options);
  // Without a token, rank 0 makes a new one for each attempt.
  return options.token.empty() ? connect_to_master(options, Server::MayComeLater)
                               : connect_to_own_attempt(options);
}

std::string place_of(const WorldOptions& options) {
  if (!options.store_file.empty()) return fmt::format("in {}", quote(options.store_file));
  return fmt::format("at {}:{}", options.master_address, options.master_port);
}

bool meets_at_port(const WorldOptions& options) {
  return options.size > 1 && options.store_file.empty();
}

// Is there as soon as a job can be joined.
constexpr const char* kOpen = "world/open";

// Waits for the token that rank 0 has left for this one. A file of an earlier job does not count:
// the store knows only that of its own.
std::string find_local_token(const StorePtr& root, const WorldOptions& options) {
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  const std::filesystem::path folder = local_token_folder();
  do {
    std::string token = read_local_token(folder, options.master_port);
    try {
      if (!token.empty() && part_of_job(root, token, options.attempt)->check({kOpen})) return token;
    } catch (const std::exception& error) {
      throw_no_answer(options, cause_of(error));
    }
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < deadline);
  throw WorldError(fmt::format(
      "rank {} has no token, and found none within {:.3g} s in {} for the job at {}:{}; rank 0 may "
      "have been given one, be of another user, or see another /tmp: set PENSTOCK_TOKEN to the "
      "same "
      "random text for all ranks; or another job has this port (MASTER_PORT)",
      options.rank, seconds(options.timeout),
      quote(local_token_path(folder, options.master_port).string(), 200), options.master_address,
      options.master_port));
}

}  // namespace

struct Store::Impl {
  WorldOptions options;
  StorePtr root;   // of all jobs that meet there
  StorePtr store;  // of this one
  std::string place;
  enum class Role { Client, Server };
  Role role;
  std::unique_ptr<LocalToken> local_token;  // for ranks that are still to come

  Impl(const WorldOptions& world_options, StorePtr connection, Role its_role)
      : options(world_options),
        root(std::move(connection)),
        store(part_of_job(root, options.token, options.attempt)),
        place(place_of(options)),
        role(its_role) {}

  // Says whose failure it is, whatever libtorch throws.
  template <typename Call>
  auto call(const Call& call) {
    try {
      return call(*store);
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  [[noreturn]] void fail(const std::string& cause) const {
    throw WorldError(fmt::format("lost the values that ranks share {}, so rank 0 may be gone: {}",
                                 place, cause));
  }
};

Store::Store(const WorldOptions& options) {
  WorldOptions own = options;
  std::unique_ptr<LocalToken> token;
  const bool needs_token = meets_at_port(options) && options.token.empty();
  if (needs_token && options.rank == 0) {
    token = std::make_unique<LocalToken>(local_token_folder(), options.master_port);
    own.token = token->text();
  }
  StorePtr root = make_store(options);
  if (needs_token && options.rank != 0) own.token = find_local_token(root, options);
  const bool is_server = options.rank == 0 && meets_at_port(options);
  impl_ = std::make_unique<Impl>(own, std::move(root),
                                 is_server ? Impl::Role::Server : Impl::Role::Client);
  if (token == nullptr) return;
  set(kOpen, "");
  token->publish();
  impl_->local_token = std::move(token);
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Store::~Store() {
  if (impl_ != nullptr && impl_->role == Impl::Role::Server) let_go_of_server(std::move(impl_));
}

void Store::close_to_others() {
  impl_->local_token.reset();
}

std::unique_ptr<Store> Store::connect_again() const {
  const WorldOptions& options = impl_->options;
  // A file keeps nobody waiting; and libtorch removes it when it was closed once per rank.
  StorePtr connection = impl_->root;
  if (options.store_file.empty() && options.size > 1) {
    connection = connect_to_master(options, Server::HasListened);
  }
  return std::unique_ptr<Store>(
      new Store(std::make_unique<Impl>(options, connection, Impl::Role::Client)));
}

std::unique_ptr<Store> Store::open_standby(const std::string& address) const {
  WorldOptions options = impl_->options;
  options.master_address = address;
  options.master_port = 0;
  const TcpStorePtr root = listen(options);
  options.master_port = root->getPort();
  return std::unique_ptr<Store>(
      new Store(std::make_unique<Impl>(options, root, Impl::Role::Server)));
}

int Store::port() const {
  return impl_->options.master_port;
}

Store::Way Store::way_to_standby(const std::string& address, int port) const {
  WorldOptions options = impl_->options;
  options.master_address = address;
  options.master_port = port;
  return [options] {
    StorePtr connection = connect_to_master(options, Server::HasListened);
    return std::unique_ptr<Store>(
        new Store(std::make_unique<Impl>(options, std::move(connection), Impl::Role::Client)));
  };
}

void Store::set(const std::string& key, const std::string& value) {
  impl_->call([&](c10d::Store& store) { store.set(key, bytes_of(value)); });
}

std::optional<std::string> Store::find(const std::string& key) {
  return impl_->call([&](c10d::Store& store) -> std::optional<std::string> {
    if (!store.check({key})) return std::nullopt;
    const std::vector<std::uint8_t> value = store.get(key);
    if (value.empty()) return std::string();
    return std::string(value.begin() + 1, value.end());
  });
}

void Store::remove(const std::string& key) {
  impl_->call([&](c10d::Store& store) { store.deleteKey(key); });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  return impl_->call([&](c10d::Store& store) { return store.add(key, amount); });
}

c10d::Store& Store::native() {
  return *impl_->store;
}

}  // namespace penstock
