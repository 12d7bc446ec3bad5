#include "tests/support/violations.h"

#include "tests/support/listing.h"

namespace penstock::testing {

std::vector<std::string> violations_of(const Schedule& schedule, const CheckOptions& options) {
  std::vector<std::string> messages;
  for (const Violation& violation : check(schedule, options).violations) {
    messages.push_back(to_string(violation));
  }
  return messages;
}

std::vector<std::string> violations_of(std::string_view listing, const CheckOptions& options) {
  return violations_of(parse_listing(listing), options);
}

}  // namespace penstock::testing
