#include "penstock/run/transport/transport.h"

namespace penstock {

StoppedError::StoppedError() : Error("stopped, because another rank has failed") {}

}  // namespace penstock
