#pragma once

#include <stdexcept>

// Guards a promise that Penstock makes to itself; never reachable from user input.
// Stays on in release builds: the checks are cheap and a wrong schedule is not.
#define PENSTOCK_ASSERT(condition, meaning)                                                  \
  do {                                                                                       \
    if (!(condition)) ::penstock::assertion_failed(#condition, meaning, __FILE__, __LINE__); \
  } while (false)

namespace penstock {

// A bug in Penstock itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void assertion_failed(const char* condition, const char* meaning, const char* file,
                                   int line);

}  // namespace penstock
