// TorchScript files of a newer PyTorch, cut into stages and trained: as in one piece, to the bit.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/capture/script.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"
#include "tests/run/pipe/fixture.h"
#include "tests/run/support/baseline.h"

namespace penstock {
namespace {

constexpr int kScriptSteps = 3;

// The parameters that a module has, each once.
std::vector<torch::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : module.parameters()) parameters.push_back(parameter);
  return parameters;
}

struct Result {
  std::vector<torch::Tensor> losses;
  std::vector<torch::Tensor> gradients;  // of the last step
  std::vector<torch::Tensor> state;      // parameters, then buffers, after all steps
};

void keep_state(Result& result, const torch::jit::Module& module) {
  result.gradients = gradients_of(parameters_of(module));
  for (const auto& parameter : module.parameters()) result.state.push_back(parameter.detach());
  for (const auto& buffer : module.buffers()) result.state.push_back(buffer);
}

void descend(const torch::jit::Module& module) {
  const torch::NoGradGuard no_grad;
  std::set<const c10::TensorImpl*> seen;
  for (torch::Tensor parameter : module.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
  }
}

void forget_gradients(const torch::jit::Module& module) {
  for (torch::Tensor parameter : module.parameters()) parameter.mutable_grad().reset();
}

KeywordArguments keywords_of(const Fixture& fixture) {
  return {fixture.keywords.begin(), fixture.keywords.end()};
}

Result train_whole(const Fixture& fixture) {
  const torch::jit::Module module = load_script(fixture.model);
  const auto stage = make_stage_module(module);  // in the plain interpreter
  Result result;
  for (int step = 0; step < kScriptSteps; ++step) {
    forget_gradients(module);
    const torch::Tensor loss =
        fixture_loss(stage->forward(fixture.inputs, keywords_of(fixture)), fixture.target);
    loss.backward();
    result.losses.push_back(loss.detach());
    if (step + 1 < kScriptSteps) descend(module);
  }
  keep_state(result, module);
  return result;
}

Result train_piped(const Fixture& fixture, int num_stages, const char* schedule) {
  const torch::jit::Module module = load_script(fixture.model);
  PipeOptions options{.example_kwargs = keywords_of(fixture)};
  const bool is_marked = fixture.model.stem() == "marked";
  if (!is_marked) options.split_policy = split_by_parameters(num_stages);
  const Pipe pipe = pipeline(module, fixture.inputs, options);
  EXPECT_EQ(pipe.num_stages(), is_marked ? 3 : num_stages);
  const LossFunction loss = [](const c10::IValue& output, const c10::IValue& target,
                               const KeywordArguments&) {
    return fixture_loss(output, target.toTensor());
  };
  const auto pipeline =
      get_schedule_class(schedule)(pipe.build_stages(), {.num_microbatches = 1, .loss = loss});
  Result result;
  for (int step = 0; step < kScriptSteps; ++step) {
    forget_gradients(module);
    // One microbatch: the fixtures say what the whole batch gives.
    const StepResult found = pipeline->step(
        {.inputs = {{fixture.inputs, keywords_of(fixture)}}, .targets = {fixture.target}});
    result.losses.push_back(found.losses.front());
    if (step + 1 < kScriptSteps) descend(module);
  }
  keep_state(result, module);
  return result;
}

class ScriptPipe : public ::testing::TestWithParam<std::string> {};

TEST_P(ScriptPipe, TrainsAsInOnePiece) {
  const Fixture fixture = read_fixture(GetParam());
  const Result expected = train_whole(fixture);
  EXPECT_TRUE(torch::allclose(expected.losses.front(), fixture.loss, 1e-4, 1e-5));
  for (const int num_stages : {2, 3}) {
    SCOPED_TRACE(num_stages);
    const Result found = train_piped(fixture, num_stages, "1F1B");
    expect_equal(found.losses, expected.losses, "losses");
    expect_equal(found.gradients, expected.gradients, "gradients");
    expect_equal(found.state, expected.state, "state");
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ScriptPipe, ::testing::ValuesIn(fixture_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace penstock
