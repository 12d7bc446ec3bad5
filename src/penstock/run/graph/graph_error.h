#pragma once

#include "penstock/base/error.h"

namespace penstock {

// An operator of a captured graph failed. what() names it, and where in the model it is.
class GraphError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock
