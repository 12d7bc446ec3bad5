#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/checkpoint/rank_state.h"

namespace penstock {

// Copies of all that a checkpoint of `states` holds, by name; numbers of the optimizer as tensors.
inline std::map<std::string, torch::Tensor> values_of(const std::vector<RankState>& states) {
  std::map<std::string, torch::Tensor> values;
  for (const RankState& rank : states) {
    const GatheredState state = gather(rank);
    for (const auto& [name, tensor] : state.tensors) values[name] = tensor.detach().clone();
    for (const ParameterState& parameter : state.parameter_states) {
      for (const StateEntry& entry : parameter.entries) {
        const auto* number = std::get_if<std::int64_t>(&entry.value);
        values[parameter.parameter + "/" + entry.name] =
            number != nullptr ? torch::full({}, *number, torch::kLong)
                              : std::get<torch::Tensor>(entry.value).clone();
      }
    }
  }
  return values;
}

// The same names, and the same tensors to the bit.
inline void expect_same(const std::map<std::string, torch::Tensor>& found,
                        const std::map<std::string, torch::Tensor>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(found.at(name).equal(tensor)) << name;
  }
}

}  // namespace penstock
