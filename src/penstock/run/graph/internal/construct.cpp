#include "penstock/run/graph/internal/construct.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

namespace penstock {
namespace {

using torch::jit::Node;
using torch::jit::Stack;
namespace prim = c10::prim;

template <typename Element>
c10::IValue list_of(Stack& stack) {
  c10::List<Element> list;
  list.reserve(stack.size());
  for (c10::IValue& element : stack) list.push_back(std::move(element).to<Element>());
  return list;
}

c10::IValue list_like(const c10::TypePtr& element, Stack& stack) {
  switch (element->kind()) {
    case c10::TypeKind::IntType:
      return list_of<std::int64_t>(stack);
    case c10::TypeKind::FloatType:
      return list_of<double>(stack);
    case c10::TypeKind::BoolType:
      return list_of<bool>(stack);
    case c10::TypeKind::ComplexType:
      return list_of<c10::complex<double>>(stack);
    case c10::TypeKind::TensorType:
      return list_of<at::Tensor>(stack);
    default:
      break;
  }
  c10::impl::GenericList list(element);
  list.reserve(stack.size());
  for (c10::IValue& value : stack) list.push_back(std::move(value));
  return list;
}

c10::IValue tuple_like(const c10::TypePtr& type, Stack& stack) {
  std::vector<c10::IValue> elements(std::make_move_iterator(stack.begin()),
                                    std::make_move_iterator(stack.end()));
  const auto tuple = type->cast<c10::TupleType>();
  if (tuple != nullptr && tuple->name()) {
    return c10::ivalue::Tuple::createNamed(std::move(elements), tuple);
  }
  return c10::ivalue::Tuple::create(std::move(elements));
}

c10::IValue dict_like(const c10::TypePtr& type, Stack& stack) {
  const auto& dict_type = type->expectRef<c10::DictType>();
  c10::impl::GenericDict dict(dict_type.getKeyType(), dict_type.getValueType());
  dict.reserve(stack.size() / 2);
  for (std::size_t i = 0; i + 1 < stack.size(); i += 2) {
    dict.insert_or_assign(std::move(stack[i]), std::move(stack[i + 1]));
  }
  return dict;
}

}  // namespace

bool is_construct(const Node& node) {
  return node.kind() == prim::ListConstruct || node.kind() == prim::TupleConstruct ||
         node.kind() == prim::DictConstruct;
}

void construct(const Node& node, Stack& stack) {
  const c10::TypePtr& type = node.output()->type();
  c10::IValue result;
  if (node.kind() == prim::ListConstruct) {
    result = list_like(type->expectRef<c10::ListType>().getElementType(), stack);
  } else if (node.kind() == prim::TupleConstruct) {
    result = tuple_like(type, stack);
  } else {
    result = dict_like(type, stack);
  }
  stack.clear();
  stack.push_back(std::move(result));
}

bool is_unpack(const Node& node) {
  return node.kind() == prim::ListUnpack || node.kind() == prim::TupleUnpack;
}

void unpack(const Node& node, Stack& stack) {
  const c10::IValue value = std::move(stack.back());
  stack.clear();
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) stack.push_back(element);
  } else {
    // By value: lists of numbers have no IValues to refer to.
    const c10::List<c10::IValue> list = value.toList();
    for (std::size_t i = 0; i < list.size(); ++i) stack.push_back(list.get(i));
  }
  TORCH_CHECK(stack.size() == node.outputs().size(), "expected ", node.outputs().size(),
              " elements, found ", stack.size());
}

}  // namespace penstock
