#pragma once

#include <string>

namespace penstock {

// An OpenBLAS that is older than the processor takes it for one of 2004, and multiplies at a
// fraction of its speed. Then, what to call the processor instead: a value for the environment
// variable OPENBLAS_CORETYPE, which OpenBLAS reads when it is loaded. Else empty, as it is if there
// is no OpenBLAS, or the variable is set: then somebody knows better.
//
// Loads the system's BLAS if this process has none, which takes milliseconds.
std::string better_blas_core();

// Sets the variable in the environment of this process, for the program that it will become.
void set_blas_core(const std::string& core);

}  // namespace penstock
