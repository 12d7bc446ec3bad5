#include "penstock/run/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/internal/agree.h"
#include "penstock/run/checkpoint/internal/share_entries.h"
#include "penstock/run/checkpoint/internal/unfinished.h"
#include "penstock/run/checkpoint/manifest.h"
#include "penstock/run/checkpoint/safetensors.h"

namespace penstock {
namespace {

constexpr std::array kContents = {CheckpointContent::Model, CheckpointContent::Optimizer};
constexpr std::array kContentNames = {"model", "optimizer"};

using Entries = std::map<std::string, at::Tensor>;

// One state, as entries by name.
struct Writer {
  std::array<Entries, kContents.size()> entries;  // by content
  std::map<std::string, std::int64_t> scalars;
  std::map<std::string, std::string> aliases;
};

void require_saveable(const std::string& name) {
  if (const auto problem = problem_of_name(name)) {
    throw CheckpointError(fmt::format("{} cannot be saved: {}", quote(name, 80), *problem));
  }
}

Writer make_writer(const GatheredState& state) {
  Writer writer;
  Entries all;
  for (const auto& [name, tensor] : state.tensors) {
    require_saveable(name);
    const auto [place, is_new] = all.emplace(name, tensor);
    if (!is_new && !place->second.is_same(tensor)) {
      throw CheckpointError(fmt::format("two tensors of one state are called {}", quote(name, 80)));
    }
  }
  // A tensor with several names is saved under the first of them.
  std::unordered_map<const c10::TensorImpl*, const std::string*> first_names;
  for (const auto& [name, tensor] : all) {
    const auto [first, is_new] = first_names.emplace(tensor.unsafeGetTensorImpl(), &name);
    if (is_new) {
      writer.entries[0].emplace(name, tensor);
    } else {
      writer.aliases.emplace(name, *first->second);
    }
  }
  for (const ParameterState& parameter : state.parameter_states) {
    if (writer.aliases.contains(parameter.parameter)) continue;
    for (const StateEntry& entry : parameter.entries) {
      const std::string name = fmt::format("{}/{}", parameter.parameter, entry.name);
      require_saveable(name);
      if (const auto* number = std::get_if<std::int64_t>(&entry.value)) {
        writer.scalars.emplace(name, *number);
      } else {
        writer.entries[1].emplace(name, std::get<at::Tensor>(entry.value));
      }
    }
  }
  return writer;
}

std::string make_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// What a process says before anything is written.
struct Offer {
  std::string token = {};
  std::int64_t step = 0;
  std::vector<std::array<EntrySizes, kContents.size()>> writers = {};
};

Offer offer_of(const std::vector<Writer>& writers, std::int64_t step) {
  Offer offer{.token = {}, .step = step, .writers = {}};
  for (const Writer& writer : writers) {
    auto& sizes = offer.writers.emplace_back();
    for (std::size_t content = 0; content < kContents.size(); ++content) {
      for (const auto& [name, tensor] : writer.entries[content]) {
        sizes[content].emplace(name, tensor.nbytes());
      }
    }
  }
  return offer;
}

std::string to_text(const Offer& offer) {
  return nlohmann::json({offer.token, offer.step, offer.writers}).dump();
}

Offer offer_from(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.token = json.at(0), .step = json.at(1), .writers = json.at(2)};
}

// One file that a writer of this process is to write.
struct Job {
  std::size_t writer = 0;  // of this process
  std::size_t content = 0;
  std::string file = {};
  std::vector<std::string> names = {};
};

// The writers of all processes share the entries; those of `rank` are returned.
std::vector<Job> jobs_of(const std::vector<Offer>& offers, std::size_t rank) {
  std::vector<Job> jobs;
  for (std::size_t content = 0; content < kContents.size(); ++content) {
    std::vector<EntrySizes> sizes;
    std::vector<std::pair<std::size_t, std::size_t>> places;  // process and writer
    for (std::size_t process = 0; process < offers.size(); ++process) {
      for (std::size_t writer = 0; writer < offers[process].writers.size(); ++writer) {
        sizes.push_back(offers[process].writers[writer][content]);
        places.emplace_back(process, writer);
      }
    }
    auto shares = share_entries(sizes);
    const auto is_empty = [](const auto& share) { return share.empty(); };
    const auto num_files = static_cast<std::ptrdiff_t>(shares.size()) -
                           std::count_if(shares.begin(), shares.end(), is_empty);
    int number = 0;
    for (std::size_t index = 0; index < shares.size(); ++index) {
      if (shares[index].empty()) continue;
      ++number;
      if (places[index].first != rank) continue;
      jobs.push_back({.writer = places[index].second,
                      .content = content,
                      .file = fmt::format("{}-{:05}-of-{:05}.safetensors", kContentNames[content],
                                          number, num_files),
                      .names = std::move(shares[index])});
    }
  }
  return jobs;
}

CheckpointFile write_file(const Job& job, const Writer& writer,
                          const std::filesystem::path& folder) {
  NamedTensors tensors;
  for (const std::string& name : job.names) {
    tensors.emplace_back(name, writer.entries[job.content].at(name));
  }
  // "format" is what other readers look for, to know which framework's tensors these are.
  const WrittenFile written = write_safetensors(folder / job.file, tensors, {{"format", "pt"}});
  return {.name = job.file,
          .content = kContents[job.content],
          .bytes = written.bytes,
          .sha256 = written.sha256,
          .entries = job.names};
}

std::string one_optimizer(std::string_view first, std::string_view second) {
  if (!first.empty() && !second.empty() && first != second) {
    throw CheckpointError(
        fmt::format("the optimizers are {} and {}; a checkpoint holds the state "
                    "of one kind",
                    first, second));
  }
  return std::string(first.empty() ? second : first);
}

// Adds what another process, or writer, has.
void merge_into(CheckpointManifest& manifest, CheckpointManifest other) {
  manifest.optimizer = one_optimizer(manifest.optimizer, other.optimizer);
  manifest.scalars.merge(other.scalars);
  manifest.aliases.merge(other.aliases);
  for (CheckpointFile& file : other.files) manifest.files.push_back(std::move(file));
}

// Sorted, and no name both an entry and an alias.
void tidy(CheckpointManifest& manifest) {
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& left, const auto& right) { return left.name < right.name; });
  for (const CheckpointFile& file : manifest.files) {
    if (file.content != CheckpointContent::Model) continue;
    for (const std::string& entry : file.entries) manifest.aliases.erase(entry);
  }
}

// One process's part in saving.
class Saving {
 public:
  Saving(const std::filesystem::path& folder, const std::vector<GatheredState>& states,
         const TrainingPosition& position, const SaveOptions& options)
      : folder_(folder), position_(position), options_(options) {
    if (options.keep < 0) {
      throw ArgumentError(
          fmt::format("cannot keep {} checkpoints; keep at least 1, or 0 for all", options.keep));
    }
    if (position.step < 0) {
      throw ArgumentError(fmt::format("there is no step {}", position.step));
    }
    for (const GatheredState& state : states) {
      optimizer_ = one_optimizer(optimizer_, state.optimizer);
      writers_.push_back(make_writer(state));
    }
  }

  // Each returns what the other processes must know.
  std::string begin() {
    Offer offer = offer_of(writers_, position_.step);
    if (options_.group.rank == 0) {
      offer.token = make_token();
      unfinished_.emplace(folder_, position_.step, offer.token);
    }
    return to_text(offer);
  }

  std::string write(const std::vector<std::string>& texts) {
    std::vector<Offer> offers;
    offers.reserve(texts.size());
    for (const std::string& text : texts) offers.push_back(offer_from(text));
    for (std::size_t rank = 1; rank < offers.size(); ++rank) {
      if (offers[rank].step == offers[0].step) continue;
      throw CheckpointError(fmt::format("{}: rank {} saves step {}, rank 0 saves step {}",
                                        folder_.string(), rank, offers[rank].step, offers[0].step));
    }
    const std::filesystem::path path = unfinished_path(folder_, position_.step, offers[0].token);
    const std::vector<Job> jobs = jobs_of(offers, static_cast<std::size_t>(options_.group.rank));
    CheckpointManifest manifest{.position = position_, .optimizer = optimizer_};
    manifest.files.resize(jobs.size());
    run_together(jobs.size(), [&](std::size_t index) {
      manifest.files[index] = write_file(jobs[index], writers_[jobs[index].writer], path);
    });
    for (Writer& writer : writers_) {
      manifest.scalars.merge(writer.scalars);
      manifest.aliases.merge(writer.aliases);
    }
    return write_manifest(manifest);
  }

  std::string commit(const std::vector<std::string>& texts) {
    if (!unfinished_) return {};
    CheckpointManifest manifest{.position = position_};
    for (const std::string& text : texts) merge_into(manifest, read_manifest(text, "a rank"));
    tidy(manifest);
    OutputFile file(unfinished_->path() / kManifestName);
    file.write(write_manifest(manifest));
    file.finish();
    unfinished_->commit();
    if (options_.keep > 0) unfinished_->prune(options_.keep);
    return {};
  }

 private:
  const std::filesystem::path& folder_;
  const TrainingPosition& position_;
  const SaveOptions& options_;
  std::vector<Writer> writers_;
  std::string optimizer_;
  std::optional<UnfinishedCheckpoint> unfinished_;  // of rank 0
};

}  // namespace

std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      const std::vector<GatheredState>& states,
                                      const TrainingPosition& position,
                                      const SaveOptions& options) {
  std::optional<Saving> saving;
  const auto offers = agree(options.group, [&] {
    saving.emplace(folder, states, position, options);
    return saving->begin();
  });
  const auto reports = agree(options.group, [&] { return saving->write(offers); });
  agree(options.group, [&] { return saving->commit(reports); });
  return checkpoint_path(folder, position.step);
}

std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      const std::vector<RankState>& states,
                                      const TrainingPosition& position,
                                      const SaveOptions& options) {
  std::vector<GatheredState> gathered;
  gathered.reserve(states.size());
  for (const RankState& state : states) gathered.push_back(gather(state));
  return save_checkpoint(folder, gathered, position, options);
}

}  // namespace penstock
