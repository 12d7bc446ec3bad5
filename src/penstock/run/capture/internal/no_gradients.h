#pragma once

#include <ATen/core/symbol.h>

namespace penstock {

// The scope of nodes whose operators the model called with gradients switched off.
c10::Symbol no_gradients_scope();

}  // namespace penstock
