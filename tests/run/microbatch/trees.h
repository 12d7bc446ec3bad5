#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace penstock::testing {

inline c10::IValue tuple_of(std::vector<c10::IValue> children) {
  return c10::ivalue::Tuple::create(std::move(children));
}

// A named tuple `Pair` with the fields left and right, declared to hold tensors.
inline c10::IValue pair_of(c10::IValue left, c10::IValue right) {
  const std::vector<c10::TypePtr> types = {c10::TensorType::get(), c10::TensorType::get()};
  const auto type = c10::TupleType::createNamed(c10::QualifiedName("Pair"),
                                                std::vector<std::string>{"left", "right"}, types);
  return c10::ivalue::Tuple::createNamed({std::move(left), std::move(right)}, c10::TypePtr(type));
}

inline c10::IValue list_of(c10::TypePtr element_type, std::vector<c10::IValue> children) {
  c10::impl::GenericList list(std::move(element_type));
  for (c10::IValue& child : children) list.push_back(std::move(child));
  return list;
}

inline c10::IValue any_list_of(std::vector<c10::IValue> children) {
  return list_of(c10::AnyType::get(), std::move(children));
}

inline c10::IValue dict_of(std::vector<std::pair<std::string, c10::IValue>> entries,
                           c10::TypePtr value_type = c10::AnyType::get()) {
  c10::impl::GenericDict dict(c10::StringType::get(), std::move(value_type));
  for (auto& [key, value] : entries) dict.insert(key, std::move(value));
  return dict;
}

// The child of a tuple or list.
inline const c10::IValue& child(const c10::IValue& value, std::size_t index) {
  return value.isTuple() ? value.toTupleRef().elements()[index] : value.toListRef()[index];
}

// The value of a key in a dict.
inline c10::IValue child(const c10::IValue& value, const std::string& key) {
  return value.toGenericDict().at(key);
}

// The name of a named tuple, empty for a plain one.
inline std::string tuple_name(const c10::IValue& value) {
  const auto type = value.toTupleRef().type();
  return type->name() ? type->name()->name() : "";
}

}  // namespace penstock::testing
