#pragma once

#include <string>

namespace penstock {

// "1 980": the digits of a number, by threes.
std::string grouped(long long number);

}  // namespace penstock
