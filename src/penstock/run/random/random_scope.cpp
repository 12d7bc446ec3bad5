#include "penstock/run/random/random_scope.h"

#include <algorithm>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace penstock {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local RandomScope* innermost = nullptr;

// The finalizer of SplitMix64, over what is mixed already and one number more.
std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) + 0x9e3779b97f4a7c15ULL;
  state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  state = (state ^ (state >> 27U)) * 0x94d049bb133111ebULL;
  return state ^ (state >> 31U);
}

// So that stage 3 does not draw what site 3 draws.
constexpr std::uint64_t kOfStage = 1;
constexpr std::uint64_t kOfSite = 2;

bool is_generator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

bool draws(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), is_generator);
}

// Whether the numbers are for a tensor on the CPU; the generators of other devices are their own.
bool is_on_cpu(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) {
      return arguments[i].toTensor().device().is_cpu();
    }
    if (arguments[i].isDevice()) return arguments[i].toDevice().is_cpu();
  }
  return true;
}

}  // namespace

// Stands in front of the operators that draw.
struct RandomDraw {
  static at::Generator generator(RandomScope& scope) {
    thread_local std::vector<at::Generator> generators;  // by depth of the scope
    while (generators.size() <= scope.depth_) {
      generators.push_back(at::make_generator<at::CPUGeneratorImpl>());
    }
    at::Generator& generator = generators[scope.depth_];
    if (scope.stream_ == RandomStream::PerDraw) scope.seed_site(scope.num_draws_++);
    if (!scope.is_seeded_) generator.set_current_seed(scope.seed_);
    scope.is_seeded_ = true;
    return generator;
  }

  static void call(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = operation.schema();
    c10::IValue* arguments = stack->data() + (stack->size() - schema.arguments().size());
    RandomScope* scope = RandomScope::current();
    for (std::size_t i = 0; scope != nullptr && i < schema.arguments().size(); ++i) {
      if (is_generator(schema.arguments()[i]) && arguments[i].isNone() &&
          is_on_cpu(schema, arguments)) {
        arguments[i] = generator(*scope);
      }
    }
    const c10::impl::ExcludeDispatchKeyGuard once(kKey);
    operation.callBoxed(stack);
  }
};

namespace {

// Here and not in a file of its own: whoever links RandomScope has the registrations too. At
// start-up, because operators must not change while another thread runs them.
struct Registrations {
  Registrations() {
    all.fallback(torch::CppFunction::makeFallthrough());
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      const auto operation = dispatcher.findSchema(name);
      if (!operation || !draws(operation->schema())) continue;
      std::string text = name.name;
      if (!name.overload_name.empty()) text += "." + name.overload_name;
      aten.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&RandomDraw::call>());
    }
  }

  torch::Library all{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
  torch::Library aten{torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__};
};
const Registrations kRegistrations;

}  // namespace

std::uint64_t step_seed(std::uint64_t step) {
  return mix(at::detail::getDefaultCPUGenerator().current_seed(), step);
}

RandomScope::RandomScope(const RandomPlace& place, RandomStream stream)
    : outer_(innermost),
      depth_(outer_ == nullptr ? 0 : outer_->depth_ + 1),
      base_(mix(place.step_seed, static_cast<std::uint64_t>(place.microbatch))),
      seed_(mix(mix(base_, kOfStage), static_cast<std::uint64_t>(place.stage))),
      stream_(stream),
      guard_(kKey) {
  innermost = this;
}

RandomScope::~RandomScope() {
  innermost = outer_;
}

RandomScope* RandomScope::current() {
  return innermost;
}

void RandomScope::seed_site(std::uint64_t site) {
  seed_ = mix(mix(base_, kOfSite), site);
  is_seeded_ = false;
}

void RandomScope::seed_repeated_site(std::uint64_t site) {
  auto visit = std::find_if(visits_.begin(), visits_.end(),
                            [site](const auto& other) { return other.first == site; });
  if (visit == visits_.end()) visit = visits_.insert(visits_.end(), {site, 0});
  seed_site(site);
  if (visit->second > 0) seed_ = mix(seed_, visit->second);
  ++visit->second;
}

}  // namespace penstock
