#include "penstock/run/libtorch/cause.h"

#include <c10/util/Exception.h>

namespace penstock {

std::string cause_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace penstock
