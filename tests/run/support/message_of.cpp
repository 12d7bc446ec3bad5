#include "tests/run/support/message_of.h"

#include <exception>

namespace penstock {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace penstock
