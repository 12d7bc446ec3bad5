#include "checkpoint_note.h"

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "json_config.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/manifest.h"

namespace penstock {
namespace {

// That of checkpoint_note(), or nothing if the checkpoint was written by another program.
std::optional<nlohmann::json> note_of(const std::filesystem::path& path) {
  auto note = nlohmann::json::parse(manifest_of(path).position.data, nullptr, false);
  if (!note.is_object() || !note.contains("options") || !note.contains("data")) return std::nullopt;
  return note;
}

}  // namespace

std::filesystem::path checkpoint_to_use(const RunFlags& flags) {
  const std::optional<std::filesystem::path> path = latest_checkpoint(flags.checkpoint);
  if (!path) {
    throw Error(fmt::format("there is no checkpoint in {}", quote(flags.checkpoint, 200)));
  }
  return *path;
}

void apply_checkpoint(CLI::App& command, const std::filesystem::path& path) {
  const std::optional<nlohmann::json> note = note_of(path);
  if (note) apply_config(command, note->at("options"), path.string(), UnknownKeys::Ignore);
}

bool has_same_data(const std::filesystem::path& path, const Dataset& data) {
  const std::optional<nlohmann::json> note = note_of(path);
  return !note || note->at("data") == data.fingerprint();
}

std::optional<TokenShape> tokens_of_checkpoint(const std::filesystem::path& path) {
  const std::optional<nlohmann::json> note = note_of(path);
  if (!note) return std::nullopt;
  if (!note->contains("tokens")) {
    throw Error(fmt::format(
        "{}: an older Penstock has written it, which did not keep the context and the vocabulary "
        "of "
        "the model; 'penstock train --resume' with a step more writes one that has them",
        path.string()));
  }
  const nlohmann::json& tokens = note->at("tokens");
  if (tokens.is_null()) {
    throw ArgumentError(fmt::format(
        "{}: text is written token by token, but the model takes other data", path.string()));
  }
  return TokenShape{.context = tokens.at("context"), .vocabulary = tokens.at("vocabulary")};
}

std::string checkpoint_note(const CLI::App& command, const Dataset& data) {
  nlohmann::json options = options_as_config(
      command,
      {"model",  "layers",    "width",   "heads",  "context",     "vocabulary",   "dropout",
       "untied", "data",      "holdout", "loss",   "batch",       "microbatches", "seed",
       "steps",  "optimizer", "lr",      "min-lr", "lr-schedule", "warmup",       "weight-decay",
       "clip",   "momentum",  "beta1",   "beta2"});
  // Found again from another folder, too.
  const auto from_anywhere = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
  };
  if (const std::string model = options["model"]; !is_built_in(model)) {
    options["model"] = from_anywhere(model);
  }
  if (options.contains("data")) {
    std::vector<std::string> paths;
    for (const std::string& path : command.get_option("--data")->results()) {
      paths.push_back(from_anywhere(path));
    }
    options["data"] = paths;
  }
  nlohmann::json tokens;
  if (const std::optional<TokenShape> shape = token_shape_of(data)) {
    tokens = {{"context", shape->context}, {"vocabulary", shape->vocabulary}};
  }
  return nlohmann::json{{"options", options}, {"data", data.fingerprint()}, {"tokens", tokens}}
      .dump();
}

}  // namespace penstock
