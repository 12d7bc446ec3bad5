#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "penstock/run/capture/script.h"
#include "tests/run/pipe/fixture.h"

// The files of a newer PyTorch, loaded and trained as they are; the ruler for the tests that cut
// them.
namespace penstock {
namespace {

// Sums are ordered differently in each version of PyTorch.
void expect_close(const torch::Tensor& found, const torch::Tensor& expected,
                  const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(torch::allclose(found, expected, 1e-4, 1e-5))
      << what << " differs by up to " << (found - expected).abs().max().item<double>();
}

void expect_close(const c10::IValue& found, const c10::IValue& expected) {
  if (expected.isTensor()) {
    expect_close(found.toTensor(), expected.toTensor(), "output");
    return;
  }
  ASSERT_EQ(found.toGenericDict().size(), expected.toGenericDict().size());
  for (const auto& entry : expected.toGenericDict()) {
    expect_close(found.toGenericDict().at(entry.key()).toTensor(), entry.value().toTensor(),
                 entry.key().toStringRef());
  }
}

class Fixtures : public ::testing::TestWithParam<std::string> {};

TEST_P(Fixtures, ComputeWhatTheNewerPyTorchComputed) {
  const Fixture fixture = read_fixture(GetParam());
  torch::jit::Module model = load_script(fixture.model);

  const c10::IValue output = model.get_method("forward")(fixture.inputs, fixture.keywords);
  const torch::Tensor loss = fixture_loss(output, fixture.target);
  loss.backward();

  expect_close(output, fixture.output);
  expect_close(loss, fixture.loss, "loss");
  std::set<std::string> with_gradient;
  for (const auto& parameter : model.named_parameters()) {
    const torch::Tensor gradient = parameter.value.grad();
    if (!gradient.defined()) continue;
    // Unlike in Python, a tied parameter appears under each of its names.
    if (!fixture.gradients.contains(parameter.name)) continue;
    with_gradient.insert(parameter.name);
    expect_close(gradient, fixture.gradients.at(parameter.name), parameter.name);
  }
  EXPECT_EQ(with_gradient.size(), fixture.gradients.size());
  for (const auto& buffer : model.named_buffers()) {
    expect_close(buffer.value, fixture.buffers.at(buffer.name), buffer.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipe, Fixtures, ::testing::ValuesIn(fixture_names()),
                         [](const auto& instance) { return instance.param; });

TEST(FixtureFiles, AreAllTested) {
  std::set<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(read_fixture("marked").model.parent_path())) {
    const std::filesystem::path name = entry.path().filename();
    if (name.extension() == ".pt" && name.stem().extension() != ".expected") {
      files.insert(name.stem().string());
    }
  }
  EXPECT_THAT(fixture_names(), ::testing::UnorderedElementsAreArray(files));
}

}  // namespace
}  // namespace penstock
