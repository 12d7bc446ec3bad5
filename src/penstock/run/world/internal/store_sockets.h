#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

// The connections of libtorch's store, which it keeps to itself.

namespace penstock {

// Bounds how long whoever serves `port` in this process waits in the middle of a message, for every
// connection that is there and every one that comes. A read or write that takes longer fails.
void limit_waits_at_port(int port, std::chrono::milliseconds limit);

// Ends the connections to `port` of this process whose other end has said something, of which
// nothing is left to be read. If the port has not been served for a while, one of them has stopped
// in the middle of a message.
void hang_up_on_silent_at_port(int port);

// One end of a connection, as "address:port".
using ConnectionEnd = std::string;

// The own ends of the connections of this process to `port` of any host.
std::vector<ConnectionEnd> own_ends_towards_port(int port);

// The other ends of the connections to `port` of this process, of those that are still open.
std::set<ConnectionEnd> open_ends_at_port(int port);

}  // namespace penstock
