#pragma once

#include "penstock/run/libtorch/backend.h"

namespace penstock {

// Makes backends of c10d that hand messages over in the store where their ranks meet. They are
// slow, do not notice when a rank is gone, and can be asked whether an operation is completed.
MakeBackend store_backend();

}  // namespace penstock
