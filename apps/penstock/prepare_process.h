#pragma once

namespace penstock {

// Tunes the process for ranks that compute: all commands that do so call it first, so that what one
// measures is what another runs. Starts this program anew if OpenBLAS has to be told what processor
// this is, which it has to know from the beginning; `penstock` tells it before it calls this
// program.
void prepare_process();

}  // namespace penstock
