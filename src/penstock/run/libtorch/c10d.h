#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

// Where the c10d of libtorch 1.13 and 2.x differ. Included by few sources only: it is large.
namespace penstock {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using TcpStorePtr = c10::intrusive_ptr<c10d::TCPStore>;

// 2.x serves a store with libuv by default, which Debian's build does not have.
template <class Options>
void use_plain_sockets(Options& options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
}

// How long a store waits for an answer.
inline std::chrono::milliseconds longest_answer(std::chrono::milliseconds timeout) {
  return std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(5));
}

// Waits for the server, if this is not it, but never for other clients: in 1.13 that wait ends
// without a word when clients are missing. No answer within longest_answer() is an error. A server
// at port 0 takes one that is free.
inline TcpStorePtr make_tcp_store(const std::string& address, int port, bool is_server,
                                  std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = is_server;
  options.waitWorkers = false;
  use_plain_sockets(options);
  auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
  store->setTimeout(longest_answer(timeout));
  return store;
}

// To be called on a new connection: without a first get() it waits for answers without end in 1.13.
inline void greet(c10d::Store& store) {
  store.set("hello", std::vector<std::uint8_t>());
  store.get("hello");
}

}  // namespace penstock
