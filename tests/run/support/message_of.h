#pragma once

#include <functional>
#include <string>

namespace penstock {

// What the exception that `call` throws says.
std::string message_of(const std::function<void()>& call);

}  // namespace penstock
