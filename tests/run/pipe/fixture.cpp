#include "tests/run/pipe/fixture.h"

#include <fstream>
#include <iterator>

namespace penstock {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(PENSTOCK_SOURCE_DIR) / "tests/run/pipe/fixtures";

c10::impl::GenericDict read_dict(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::pickle_load(bytes).toGenericDict();
}

std::map<std::string, torch::Tensor> tensors_of(const c10::IValue& pairs) {
  std::map<std::string, torch::Tensor> tensors;
  for (const c10::IValue& pair : pairs.toTupleRef().elements()) {
    const auto& elements = pair.toTupleRef().elements();
    tensors.emplace(elements[0].toStringRef(), elements[1].toTensor());
  }
  return tensors;
}

}  // namespace

const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {
      "attention",      "branching",   "conv_net",   "dict_output", "encoder_scripted",
      "encoder_traced", "keyword_mlp", "late_input", "marked",      "tied_gpt"};
  return names;
}

Fixture read_fixture(const std::string& name) {
  const c10::impl::GenericDict expected = read_dict(kFolder / (name + ".expected.pt"));
  Fixture fixture;
  fixture.model = kFolder / (name + ".pt");
  const c10::IValue inputs = expected.at("inputs");
  for (const c10::IValue& input : inputs.toTupleRef().elements()) fixture.inputs.push_back(input);
  for (const auto& [key, value] : tensors_of(expected.at("keywords"))) {
    fixture.keywords.emplace(key, value);
  }
  fixture.target = expected.at("target").toTensor();
  fixture.output = expected.at("output");
  fixture.loss = expected.at("loss").toTensor();
  fixture.gradients = tensors_of(expected.at("gradients"));
  fixture.buffers = tensors_of(expected.at("buffers"));
  return fixture;
}

torch::Tensor fixture_loss(const c10::IValue& output, const torch::Tensor& target) {
  if (output.isGenericDict()) return output.toGenericDict().at("loss").toTensor();
  return torch::mse_loss(output.toTensor(), target);
}

}  // namespace penstock
