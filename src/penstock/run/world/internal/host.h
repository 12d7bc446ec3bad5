#pragma once

#include <chrono>
#include <string>

namespace penstock {

// Equal for two processes if they run on one machine, under one host name, and know each other by
// their process ids.
std::string host_identity();

struct Endpoint {
  std::string address;
  int port = 0;
};

// "host:port", for messages.
std::string to_string(const Endpoint& endpoint);

// Tries once. Returns an empty text if something accepts connections there, otherwise why not.
std::string try_to_connect(const Endpoint& endpoint,
                           std::chrono::steady_clock::time_point deadline);

// Waits until something accepts connections there. Returns an empty text then, and why not when
// the deadline has passed.
std::string wait_for_listener(const Endpoint& endpoint,
                              std::chrono::steady_clock::time_point deadline);

// The address of this host that packets to `endpoint` leave from, as a number. Throws WorldError if
// there is no way there.
std::string local_address_towards(const Endpoint& endpoint);

}  // namespace penstock
