#include "penstock/run/checkpoint/internal/sliced_places.h"

#include <string_view>
#include <unordered_map>

#include "penstock/run/data_parallel/sharded_parameters.h"

namespace penstock {

std::vector<SlicedPlace> places_of(const SlicedParameters& sliced) {
  const std::vector<ParameterSlice>& slices = sliced.parameters->slices();
  std::unordered_map<std::string_view, std::size_t> slice_of_name;
  for (std::size_t slice = 0; slice < slices.size(); ++slice) {
    slice_of_name.emplace(slices[slice].name, slice);
  }
  // A slice has one of the names of its parameter.
  std::unordered_map<const c10::TensorImpl*, std::size_t> slice_of_tensor;
  for (const auto& [name, tensor] : sliced.named) {
    const auto found = slice_of_name.find(name);
    if (found == slice_of_name.end()) continue;
    slice_of_tensor.emplace(tensor.unsafeGetTensorImpl(), found->second);
  }
  std::vector<SlicedPlace> places;
  for (const auto& [name, tensor] : sliced.named) {
    const std::size_t slice = slice_of_tensor.at(tensor.unsafeGetTensorImpl());
    places.push_back({name, slice, slices[slice].tensor, tensor});
  }
  return places;
}

}  // namespace penstock
