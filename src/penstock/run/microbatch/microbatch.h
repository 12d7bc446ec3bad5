#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

namespace penstock {

using KeywordArguments = std::map<std::string, c10::IValue>;

// What one call of the model gets: a whole batch, or one microbatch of it.
struct Microbatch {
  std::vector<c10::IValue> args = {};
  KeywordArguments kwargs = {};
};

// Checks microbatches that the caller has split: there are `num_microbatches` of them, all with
// as many positional arguments and the same keywords. Throws ArgumentError.
void require_microbatches(const std::vector<Microbatch>& microbatches, int num_microbatches);

}  // namespace penstock
