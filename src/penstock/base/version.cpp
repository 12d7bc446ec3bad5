#include "penstock/base/version.h"

namespace penstock {

const char* version() {
  return PENSTOCK_VERSION;
}

}  // namespace penstock
