#include "penstock/run/pipe/save_stages.h"

#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

using torch::jit::Graph;
using torch::jit::Value;

// Modules inside of modules, made as their paths come up.
class ModuleTree {
 public:
  ModuleTree() : unit_(std::make_shared<torch::jit::CompilationUnit>()), root_(make("Stage")) {}

  torch::jit::Module& root() { return root_; }
  const std::shared_ptr<torch::jit::CompilationUnit>& unit() const { return unit_; }

  void add(const StageGraph::Tensor& tensor) {
    const auto [path, name] = parted(tensor.name);
    torch::jit::Module parent = module_at(path);
    if (parent.hasattr(name)) return;
    if (tensor.is_buffer) {
      parent.register_buffer(name, tensor.tensor);
    } else {
      parent.register_parameter(name, tensor.tensor, /*is_buffer=*/false);
    }
  }

  // Reads the tensor called `name` at the beginning of `graph`.
  Value* read(Graph& graph, Value* self, const std::string& name) {
    Value* value = self;
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.find('.', begin), name.size());
      value = graph.insertGetAttr(value, name.substr(begin, end - begin));
      begin = end + 1;
    }
    return value;
  }

 private:
  static std::pair<std::string, std::string> parted(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos) return {"", name};
    return {name.substr(0, dot), name.substr(dot + 1)};
  }

  torch::jit::Module make(const std::string& name) {
    return {"__torch__.penstock." + name, unit_, /*shouldMangle=*/true};
  }

  torch::jit::Module module_at(const std::string& path) {
    if (path.empty()) return root_;
    const auto known = modules_.find(path);
    if (known != modules_.end()) return known->second;
    const auto [parent, name] = parted(path);
    torch::jit::Module child = make("Module");
    module_at(parent).register_module(name, child);
    modules_.emplace(path, child);
    return child;
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  torch::jit::Module root_;
  std::map<std::string, torch::jit::Module> modules_;
};

nlohmann::ordered_json manifest_of(const std::vector<StageGraph>& stages) {
  nlohmann::ordered_json manifest;
  manifest["format"] = "penstock stages";
  manifest["version"] = 1;
  manifest["stages"] = nlohmann::ordered_json::array();
  std::map<std::string, std::vector<std::size_t>> users;
  for (std::size_t index = 0; index < stages.size(); ++index) {
    nlohmann::ordered_json stage;
    stage["file"] = fmt::format("stage_{}.pt", index);
    stage["inputs"] = stages[index].values;
    stage["parameters"] = nlohmann::ordered_json::array();
    stage["buffers"] = nlohmann::ordered_json::array();
    for (const StageGraph::Tensor& tensor : stages[index].tensors) {
      stage[tensor.is_buffer ? "buffers" : "parameters"].push_back(tensor.name);
    }
    for (const StageGraph::Tensor& tensor : stages[index].shared) {
      auto& stages_of = users[tensor.name];
      if (!stages_of.empty() && stages_of.back() == index) continue;
      stage["parameters"].push_back(tensor.name);
      stages_of.push_back(index);
    }
    manifest["stages"].push_back(std::move(stage));
  }
  manifest["shared_parameters"] = nlohmann::ordered_json::object();
  for (const auto& [name, stages_of] : users) manifest["shared_parameters"][name] = stages_of;
  return manifest;
}

// A folder that is removed again unless it was moved to its place.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  UnfinishedFolder(UnfinishedFolder&&) = delete;
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;
  ~UnfinishedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("{}: cannot be written", path.string()));
}

void write_stages(const std::vector<StageGraph>& stages, const std::filesystem::path& folder) {
  for (std::size_t index = 0; index < stages.size(); ++index) {
    const std::filesystem::path path = folder / fmt::format("stage_{}.pt", index);
    try {
      to_script(stages[index]).save(path.string());
    } catch (const c10::Error& error) {
      throw Error(
          fmt::format("{}: cannot be written ({})", path.string(), error.what_without_backtrace()));
    }
  }
  write_text(folder / "manifest.json", manifest_of(stages).dump(2) + "\n");
}

}  // namespace

torch::jit::Module to_script(const StageGraph& stage) {
  ModuleTree tree;
  for (const StageGraph::Tensor& tensor : stage.tensors) tree.add(tensor);
  for (const StageGraph::Tensor& tensor : stage.shared) tree.add(tensor);

  const std::shared_ptr<Graph> graph = stage.graph->copy();
  Value* const self = graph->insertInput(0, "self")->setType(tree.root().type());
  const torch::jit::WithInsertPoint at_the_beginning(*graph->nodes().begin());
  const std::size_t first_tensor = 1 + stage.values.size();
  const auto bind = [&](const std::vector<StageGraph::Tensor>& tensors) {
    for (const StageGraph::Tensor& tensor : tensors) {
      Value* const input = graph->inputs()[first_tensor];
      if (input->hasUses()) input->replaceAllUsesWith(tree.read(*graph, self, tensor.name));
      graph->eraseInput(first_tensor);
    }
  };
  bind(stage.tensors);
  bind(stage.shared);
  for (std::size_t index = 0; index < stage.values.size(); ++index) {
    graph->inputs()[index + 1]->setDebugName(stage.takes_keywords ? stage.values[index]
                                                                  : fmt::format("input_{}", index));
  }
  torch::jit::Function* const forward = tree.unit()->create_function(
      c10::QualifiedName(*tree.root().type()->name(), "forward"), graph);
  tree.root().type()->addMethod(forward);
  return tree.root();
}

void save_stages(const std::vector<StageGraph>& stages, const std::filesystem::path& folder) {
  try {
    if (std::filesystem::exists(folder) && !std::filesystem::is_empty(folder)) {
      throw Error(fmt::format("{}: is not empty; give a folder that is, or that does not exist",
                              folder.string()));
    }
    std::filesystem::path place = folder;
    if (!place.has_filename()) place = place.parent_path();  // "stages/"
    const UnfinishedFolder unfinished(place.string() + ".unfinished");
    write_stages(stages, unfinished.path());
    std::filesystem::rename(unfinished.path(), place);
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(fmt::format("{}: cannot be written ({})", folder.string(), error.code().message()));
  }
}

}  // namespace penstock
