#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/executor/loss_function.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {
namespace {

int num_named(const c10::IValue& spec) {
  int count = 0;
  for_each_leaf(spec, [&](const c10::IValue& leaf) {
    if (!leaf.isBool()) {
      throw ArgumentError(fmt::format(
          "the loss spec {} has an entry that is neither true nor false", describe(spec)));
    }
    count += leaf.toBool() ? 1 : 0;
  });
  return count;
}

// Thrown where output and spec part; whoever knows both says the rest.
struct Mismatch {
  std::string problem;
};

c10::IValue find(const c10::IValue& output, const c10::IValue& spec);

// The one of two lists of children that holds the loss.
template <typename Outputs, typename Specs>
c10::IValue find_in_list(const Outputs& outputs, const Specs& specs) {
  if (outputs.size() != specs.size()) {
    throw Mismatch{
        fmt::format("it has {} entries where the spec has {}", outputs.size(), specs.size())};
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (num_named(specs[i]) > 0) return find(outputs[i], specs[i]);
  }
  return {};
}

c10::IValue find_in_dict(const c10::IValue& output, const c10::IValue& spec) {
  const auto entries = output.toGenericDict();
  for (const auto& entry : spec.toGenericDict()) {
    if (num_named(entry.value()) == 0) continue;
    const auto found = entries.find(entry.key());
    if (found == entries.end()) {
      throw Mismatch{fmt::format("it has no entry {}", describe(entry.key()))};
    }
    return find(found->value(), entry.value());
  }
  return {};
}

c10::IValue find(const c10::IValue& output, const c10::IValue& spec) {
  if (spec.isBool()) return output;
  if (spec.isTuple() && output.isTuple()) {
    return find_in_list(output.toTupleRef().elements(), spec.toTupleRef().elements());
  }
  if (spec.isList() && output.isList()) {
    return find_in_list(output.toListRef(), spec.toListRef());
  }
  if (spec.isGenericDict() && output.isGenericDict()) return find_in_dict(output, spec);
  throw Mismatch{fmt::format("it is no {} there", spec.isTuple()  ? "tuple"
                                                  : spec.isList() ? "list"
                                                                  : "dict")};
}

c10::IValue default_spec() {
  c10::Dict<std::string, bool> spec;
  spec.insert("loss", true);
  return spec;
}

}  // namespace

LossFunction loss_in_output(const c10::IValue& spec) {
  const c10::IValue where = spec.isNone() ? default_spec() : spec;
  if (const int count = num_named(where); count != 1) {
    throw ArgumentError(fmt::format("the loss spec {} names {} losses; set one entry to true",
                                    describe(where), count));
  }
  return [where](const c10::IValue& output, const KeywordArguments& /*keywords*/) {
    try {
      c10::IValue loss = find(output, where);
      if (!loss.isTensor()) throw Mismatch{"it has no tensor there"};
      return std::move(loss).toTensor();
    } catch (const Mismatch& mismatch) {
      throw StageError(fmt::format("the model returned {}, in which the spec {} finds no loss: {}",
                                   describe(output), describe(where), mismatch.problem));
    }
  };
}

}  // namespace penstock
