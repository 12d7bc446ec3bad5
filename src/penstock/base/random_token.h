#pragma once

#include <string>

namespace penstock {

// 128 random bits, in hexadecimal, that nobody can guess.
std::string random_token();

}  // namespace penstock
