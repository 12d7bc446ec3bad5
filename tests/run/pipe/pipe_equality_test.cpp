// A model that was handed over whole and cut trains as it does in one piece, to the bit: outputs,
// losses, gradients, and parameters and buffers after three steps of an optimizer.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/microbatch/merge.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/whole_models.h"

namespace penstock {
namespace {

constexpr int kMicrobatches = 4;
constexpr int kRows = 8;
constexpr int kSteps = 3;

enum class Cut { Marker, Spec, Parameters, Time };

const char* name_of(Cut cut) {
  switch (cut) {
    case Cut::Marker:
      return "Marker";
    case Cut::Spec:
      return "Spec";
    case Cut::Parameters:
      return "Parameters";
    case Cut::Time:
      return "Time";
  }
  return "";
}

// The places that cut a model of four modules into that many stages.
std::vector<int> places_for(int num_stages) {
  if (num_stages == 2) return {2};
  if (num_stages == 3) return {1, 3};
  return {1, 2, 3};
}

std::vector<c10::IValue> first_rows(const std::vector<c10::IValue>& inputs, int rows) {
  std::vector<c10::IValue> first;
  for (const c10::IValue& input : inputs) first.emplace_back(input.toTensor().slice(0, 0, rows));
  return first;
}

Pipe cut(const WholeModel& model, const std::shared_ptr<WholeModule>& module, int num_stages,
         Cut how) {
  PipeOptions options;
  for (const int place : places_for(num_stages)) {
    if (how == Cut::Marker) module->markers.insert(place);
    if (how == Cut::Spec) {
      options.split_spec[model.modules[static_cast<std::size_t>(place)]] = SplitPoint::Beginning;
    }
  }
  if (how == Cut::Parameters) options.split_policy = split_by_parameters(num_stages);
  if (how == Cut::Time) options.split_policy = split_by_time(num_stages, nullptr, {.num_runs = 1});
  return pipeline(trace_source(module), first_rows(model.make_inputs(kRows), kRows / kMicrobatches),
                  options);
}

struct Trained {
  std::vector<c10::IValue> outputs;
  std::vector<torch::Tensor> losses;
  std::map<std::string, torch::Tensor> gradients;  // of the last step
  std::map<std::string, torch::Tensor> state;
};

std::map<std::string, torch::Tensor> gradients_by_name(torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& gradient = item.value().grad();
    gradients[item.key()] = gradient.defined() ? gradient.clone() : torch::Tensor();
  }
  return gradients;
}

torch::optim::AdamW make_optimizer(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.01));
}

Trained train_whole(const WholeModel& model) {
  const auto module = model.make();
  auto optimizer = make_optimizer(module->parameters());
  const auto inputs = model.make_inputs(kRows);
  const auto targets = model.make_targets(kRows).tensor_split(kMicrobatches);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (std::size_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      std::vector<c10::IValue> rows;
      for (const c10::IValue& input : inputs) {
        rows.emplace_back(input.toTensor().tensor_split(kMicrobatches)[microbatch]);
      }
      const c10::IValue output = module->forward(rows);
      const torch::Tensor loss = model.loss(output, targets[microbatch]);
      loss.backward(torch::full_like(loss, 1.0 / kMicrobatches));
      trained.outputs.push_back(output);
      trained.losses.push_back(loss.detach());
    }
    trained.gradients = gradients_by_name(*module);
    optimizer.step();
  }
  for (const auto& item : module->named_parameters())
    trained.state[item.key()] = item.value().detach();
  for (const auto& item : module->named_buffers()) trained.state[item.key()] = item.value();
  return trained;
}

Trained train_piped(const WholeModel& model, int num_stages, Cut how, const std::string& schedule) {
  const auto module = model.make();
  const Pipe pipe = cut(model, module, num_stages, how);
  EXPECT_EQ(pipe.num_stages(), num_stages);
  ScheduleOptions options{
      .num_microbatches = kMicrobatches,
      .loss = [&model](const c10::IValue& output, const c10::IValue& target,
                       const KeywordArguments&) { return model.loss(output, target.toTensor()); },
      .output_merge_spec = ChunkSpec::split(0)};
  if (schedule == "Interleaved1F1B") options.num_ranks = num_stages % 2 == 0 ? num_stages / 2 : 1;
  const auto pipeline = get_schedule_class(schedule)(pipe.build_stages(), options);
  auto optimizer = make_optimizer(pipeline->parameters());
  const auto inputs = model.make_inputs(kRows);
  const auto targets = model.make_targets(kRows);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const StepResult result = pipeline->step(inputs, {.target = targets});
    trained.outputs.push_back(result.output);
    trained.losses.insert(trained.losses.end(), result.losses.begin(), result.losses.end());
    trained.gradients = gradients_by_name(*module);
    optimizer.step();
  }
  // The state dict of the stages, joined, is the model's.
  for (const auto& [name, tensor] : pipe.named_parameters()) trained.state[name] = tensor.detach();
  for (const auto& [name, tensor] : pipe.named_buffers()) trained.state[name] = tensor;
  return trained;
}

void expect_same(const std::map<std::string, torch::Tensor>& found,
                 const std::map<std::string, torch::Tensor>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << what << " " << name;
    ASSERT_EQ(found.at(name).defined(), tensor.defined()) << what << " " << name;
    if (!tensor.defined()) continue;
    EXPECT_TRUE(torch::equal(found.at(name), tensor))
        << what << " of " << name << " differ by at most "
        << (found.at(name) - tensor).abs().max().item<double>();
  }
}

void expect_same_outputs(const Trained& found, const Trained& expected) {
  ASSERT_EQ(found.outputs.size(), static_cast<std::size_t>(kSteps));
  for (std::size_t step = 0; step < found.outputs.size(); ++step) {
    const auto first = expected.outputs.begin() + static_cast<std::ptrdiff_t>(step * kMicrobatches);
    const c10::IValue merged = merge_microbatches(
        std::vector<c10::IValue>(first, first + kMicrobatches), ChunkSpec::split(0));
    EXPECT_TRUE(equal_values(found.outputs[step], merged)) << "output of step " << step;
  }
}

struct Case {
  WholeModel model;
  int num_stages;
  Cut cut;
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << test.model.name << " by " << name_of(test.cut) << " into " << test.num_stages;
}

class PipeEquality : public ::testing::TestWithParam<Case> {};

TEST_P(PipeEquality, TrainsAsInOnePiece) {
  const Case& test = GetParam();
  const Trained expected = train_whole(test.model);
  for (const char* schedule : {"GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"}) {
    // V layouts have two stages per rank.
    if (schedule_family(schedule).default_stages_per_rank == 2 && test.num_stages % 2 != 0 &&
        std::string(schedule) != "Interleaved1F1B") {
      continue;
    }
    SCOPED_TRACE(schedule);
    const Trained found = train_piped(test.model, test.num_stages, test.cut, schedule);
    expect_same_outputs(found, expected);
    expect_equal(found.losses, expected.losses, "losses");
    expect_same(found.gradients, expected.gradients, "gradients");
    expect_same(found.state, expected.state, "state");
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const WholeModel& model : all_whole_models()) {
    for (const int num_stages : {2, 3, 4}) {
      for (const Cut how : {Cut::Marker, Cut::Spec, Cut::Parameters, Cut::Time}) {
        cases.push_back({model, num_stages, how});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, PipeEquality, ::testing::ValuesIn(all_cases()),
                         [](const ::testing::TestParamInfo<Case>& test) {
                           return test.param.model.name + "_" + name_of(test.param.cut) + "_" +
                                  std::to_string(test.param.num_stages);
                         });

}  // namespace
}  // namespace penstock
