#pragma once

namespace penstock {

// Shows the share of a measurement that is done, on a terminal only.
void show_progress(double done);

}  // namespace penstock
