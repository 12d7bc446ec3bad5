#pragma once

#include "penstock/base/error.h"

namespace penstock {

// A rank of the group has died, failed, left or fallen silent, or the ranks do not agree on what to
// run. All ranks throw it with the same text, except for the one that failed by itself.
class GroupError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock
