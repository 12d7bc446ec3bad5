#pragma once

namespace penstock {

const char* version();  // of this library, as "0.1.0"

}  // namespace penstock
