#include "penstock/base/error.h"

#include <fmt/format.h>

namespace penstock {

ParseError::ParseError(const std::string& source, int line, int column, const std::string& problem)
    : Error(fmt::format("{}:{}:{}: {}", source, line, column, problem)),
      line_(line),
      column_(column),
      problem_(problem) {}

}  // namespace penstock
