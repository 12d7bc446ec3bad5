#pragma once

#include <string>
#include <vector>

namespace penstock {

// The text that comes with Penstock, to train on when there is no other: its documents and sources,
// beside the installed program or in the source tree that it was built from. Throws Error, with the
// places, if neither is there.
std::vector<std::string> shipped_text();

}  // namespace penstock
