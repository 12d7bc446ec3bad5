#pragma once

#include <string_view>

namespace penstock {

// The files of page/, which the build turns into constants.
extern const std::string_view kPageTemplate;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace penstock
