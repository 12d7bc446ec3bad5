#pragma once

namespace penstock {

// Under which a rank tells all others why the world cannot be.
inline constexpr const char* kRefusal = "world/refusal";

// Said where the store does not answer.
inline constexpr const char* kSilentStore =
    "what the ranks share does not answer: the process that holds it, or the one that has used it "
    "last, is stopped or cut off";

}  // namespace penstock
