#pragma once

#include "penstock/base/error.h"

namespace penstock {

// A checkpoint that cannot be written or read. what() begins with the file or folder.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock
