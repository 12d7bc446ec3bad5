#pragma once

namespace penstock {

// Under which a rank tells all others why the world cannot be.
inline constexpr const char* kRefusal = "world/refusal";

}  // namespace penstock
