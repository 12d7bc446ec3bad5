#pragma once

#include <string>

namespace penstock {

// A TCP port that nobody listens on at this moment.
int find_free_port();

// 128 random bits, in hexadecimal.
std::string make_token();

}  // namespace penstock
