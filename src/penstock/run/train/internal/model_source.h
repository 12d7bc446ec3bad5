#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "penstock/run/capture/trace.h"

namespace penstock {

// Throw ArgumentError, which names the size, unless a model can have it.
void require_size(std::string_view name, std::int64_t size);
void require_dropout(double probability);

// A model that takes one tensor, for a capture.
template <typename Model>
TraceSource source_of(const std::shared_ptr<Model>& model) {
  return {.forward = [module = model.get()](const std::vector<c10::IValue>& inputs,
                                            const KeywordArguments& keywords) -> c10::IValue {
            require_inputs(1, inputs.size(), keywords);
            return module->forward(inputs.front().toTensor());
          },
          .module = model};
}

}  // namespace penstock
