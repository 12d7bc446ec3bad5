#pragma once

#include <exception>
#include <string>

namespace penstock {

// What `error` says, without the backtrace that libtorch adds to its own.
std::string cause_of(const std::exception& error);

}  // namespace penstock
