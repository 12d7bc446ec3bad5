#include "run_flags.h"

#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/train/token_data.h"
#include "penstock/run/train/training_loss.h"
#include "schedule_io.h"
#include "schedule_source.h"
#include "shipped_text.h"

namespace penstock {
namespace {

constexpr CountRange kCount{.smallest = 1, .largest = 1 << 24};

std::optional<int> given(int number) {
  return number == 0 ? std::nullopt : std::optional<int>(number);
}

ModelOptions model_options(const RunFlags& flags) {
  return {.name = flags.model,
          .layers = given(flags.layers),
          .width = given(flags.width),
          .heads = given(flags.heads),
          .context = given(flags.context),
          .vocabulary = given(flags.vocabulary),
          .dropout = flags.dropout,
          .is_tied = !flags.is_untied};
}

CLI::Option* expect_share(CLI::Option* option, double end) {
  return option->check([end](const std::string& text) -> std::string {
    const std::vector<double> numbers = parse_numbers(text, 1);
    if (!numbers.empty() && numbers.front() < end) return "";
    return fmt::format("expected a number from 0 up to below {:g}, found {}", end, quote(text));
  });
}

void require_divisible(const RunFlags& flags) {
  if (flags.is_sharded && flags.replicas == 1) {
    throw ArgumentError(
        "--sharded spreads parameters over the replicas of --data-parallel, and there is one; give "
        "--data-parallel 2 or more, or leave --sharded out");
  }
  if (flags.microbatches % flags.replicas != 0) {
    throw ArgumentError(fmt::format(
        "{} cannot be divided among {} replicas; use a multiple of {}, such as --microbatches {}",
        counted(flags.microbatches, "microbatch", "microbatches"), flags.replicas, flags.replicas,
        (flags.microbatches / flags.replicas + 1) * flags.replicas));
  }
  if (flags.batch % flags.microbatches == 0) return;
  throw ArgumentError(fmt::format(
      "a batch of {} samples cannot be divided into {} microbatches of one size; use a multiple of "
      "{}, such as --batch {}",
      flags.batch, flags.microbatches, flags.microbatches,
      (flags.batch / flags.microbatches + 1) * flags.microbatches));
}

// Each process reads the files of the command line; a pipe is empty when the first one has.
void require_no_pipe(const RunFlags& flags) {
  if (!flags.uses_processes() || flags.launched) return;
  std::vector<std::string> paths = flags.data;
  paths.insert(paths.end(), {flags.config, flags.schedule, flags.model});
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool is_handed_over =
        is_standard_input(path) && (path == flags.config || path == flags.schedule);
    if (is_handed_over || !std::filesystem::is_fifo(path, ignored)) continue;
    throw ArgumentError(
        fmt::format("{} is a pipe, which only one of {} processes can read; give a file",
                    quote(path, 200), flags.num_processes()));
  }
}

// A schedule file decides the shape of the run, as far as the command line does not.
PlanRequest plan_request(const CLI::App& command, RunFlags& flags) {
  PlanRequest request{.schedule = flags.schedule};
  if (!same_name(flags.schedule, "search") && names_file(flags.schedule)) {
    request.custom = read_schedule(flags.schedule);
    if (command.get_option("--ranks")->count() == 0) flags.ranks = request.custom->num_ranks();
    if (command.get_option("--microbatches")->count() == 0) {
      flags.microbatches =
          flags.replicas * std::max(1, extent_of(*request.custom).num_microbatches);
    }
  }
  request.num_ranks = flags.ranks;
  request.num_microbatches = flags.microbatches_per_replica();
  request.stages_per_rank = flags.stages_per_rank;
  return request;
}

// make_plan() sees one pipeline, and cannot tell what all replicas take.
void require_fit(const PlanRequest& request, const RunFlags& flags) {
  if (!request.custom || flags.replicas == 1) return;
  const int expected = extent_of(*request.custom).num_microbatches;
  if (expected == request.num_microbatches) return;
  throw ArgumentError(
      fmt::format("the schedule {} is for {}, but each of the {} replicas has {}; give "
                  "--microbatches {}",
                  quote(request.schedule, 200), counted(expected, "microbatch", "microbatches"),
                  flags.replicas, request.num_microbatches, flags.replicas * expected));
}

void require_world(const RunFlags& flags) {
  if (!flags.launched || flags.launched->size == flags.num_processes()) return;
  throw ArgumentError(fmt::format("WORLD_SIZE is {}, but {} of {} take {} processes; start as many",
                                  flags.launched->size,
                                  counted(flags.replicas, "pipeline", "pipelines"),
                                  counted(flags.ranks, "rank", "ranks"), flags.num_processes()));
}

TransportKind transport_kind(const std::string& name) {
  if (name == "auto") return TransportKind::Automatic;
  return name == "gloo" ? TransportKind::Gloo : TransportKind::SharedMemory;
}

// In the place of data that is not there: as much as a batch takes.
std::shared_ptr<const Dataset> blank_tokens(const TokenShape& shape) {
  constexpr std::int64_t kSamples = 100;
  return std::make_shared<TokenData>(
      at::zeros({kSamples * (shape.context + 1)}, at::kInt),
      TokenDataOptions{.context = shape.context, .vocabulary = shape.vocabulary}, "no data");
}

std::shared_ptr<const Dataset> data_of(const RunFlags& flags, const ModelOptions& options) {
  if (flags.tokens) return blank_tokens(*flags.tokens);
  const bool takes_shipped_text =
      flags.data.empty() && flags.model != "mlp" && flags.model != "resnet";
  return read_data(takes_shipped_text ? shipped_text() : flags.data, options, flags.seed);
}

}  // namespace

void add_run_options(CLI::App& command, RunFlags& flags) {
  command
      .add_option("--config", flags.config,
                  "JSON file with the options below as keys; the command line wins")
      ->type_name("FILE");

  const std::string model = "Model";
  command.add_option("--model", flags.model, "gpt, mlp, resnet or a TorchScript file")
      ->type_name("MODEL")
      ->capture_default_str()
      ->group(model);
  expect_count(
      command.add_option("--layers", flags.layers, "blocks of a gpt or resnet, layers of an mlp"),
      kCount)
      ->type_name("N")
      ->group(model);
  expect_count(command.add_option("--width", flags.width, "size of its layers"), kCount)
      ->type_name("N")
      ->group(model);
  expect_count(command.add_option("--heads", flags.heads, "of the attention of a gpt"), kCount)
      ->type_name("N")
      ->group(model);
  expect_count(command.add_option("--context", flags.context, "tokens that a gpt sees"), kCount)
      ->type_name("N")
      ->group(model);
  expect_count(command.add_option("--vocabulary", flags.vocabulary,
                                  "different tokens; default: as the data has it"),
               kCount)
      ->type_name("N")
      ->group(model);
  expect_share(command.add_option("--dropout", flags.dropout,
                                  "share of values that are left out in training"),
               1)
      ->type_name("X")
      ->capture_default_str()
      ->group(model);
  command.add_flag("--untied", flags.is_untied, "give the head of a gpt weights of its own")
      ->group(model);

  const std::string data = "Data";
  command
      .add_option(
          "--data", flags.data,
          "text files or folders, a token file (.bin, .u16, .u32) or tensors (.pt, .safetensors); "
          "default: the text that comes with Penstock")
      ->type_name("PATH")
      ->group(data);
  expect_share(command.add_option("--holdout", flags.holdout,
                                  "share at the end of the data that is kept for eval"),
               1)
      ->type_name("X")
      ->capture_default_str()
      ->group(data);
  expect_choice(
      command.add_option("--loss", flags.loss, "cross-entropy, mse or auto: by the targets"),
      {"auto", "cross-entropy", "mse"})
      ->type_name("NAME")
      ->capture_default_str()
      ->group(data);
  expect_count(
      command.add_option("--batch", flags.batch, "samples of a step, over all microbatches"),
      kCount)
      ->type_name("N")
      ->capture_default_str()
      ->group(data);
  command.add_option("--seed", flags.seed, "decides parameters, batches and dropout")
      ->check([](const std::string& text) {
        const bool is_number = !text.empty() && text.size() < 20 &&
                               text.find_first_not_of("0123456789") == std::string::npos;
        return is_number ? std::string()
                         : fmt::format("expected a whole number from 0 up, found {}", quote(text));
      })
      ->type_name("N")
      ->capture_default_str()
      ->group(data);

  const std::string pipeline = "Pipeline";
  command
      .add_option("--schedule", flags.schedule,
                  "a name of 'penstock list', a CSV or JSON file, or search: measures a few steps "
                  "and picks order and balance")
      ->type_name("SCHEDULE")
      ->capture_default_str()
      ->group(pipeline);
  expect_count(command.add_option("-p,--ranks", flags.ranks, "ranks of the pipeline"),
               {.smallest = 1, .largest = 1024})
      ->type_name("P")
      ->capture_default_str()
      ->group(pipeline);
  expect_count(
      command.add_option("-m,--microbatches", flags.microbatches, "microbatches of a step"), kCount)
      ->type_name("M")
      ->capture_default_str()
      ->group(pipeline);
  expect_count(command.add_option("-v,--stages-per-rank", flags.stages_per_rank,
                                  "default: as the schedule has it"),
               {.smallest = 1, .largest = 1024})
      ->type_name("V")
      ->group(pipeline);
  expect_choice(command.add_option(
                    "--transport", flags.transport,
                    "ranks are threads, or processes that reach each other by shared memory "
                    "(shm), gloo, or shm within a host and gloo between hosts (auto); default: "
                    "threads, or auto under penstock launch and torchrun"),
                {"threads", "shm", "gloo", "auto"})
      ->type_name("WAY")
      ->group(pipeline);
  add_process_options(command, flags.processes, "30, or 300 if ranks are threads", pipeline);
  command.add_option("--checkpoint", flags.checkpoint, "folder of checkpoints")
      ->type_name("FOLDER")
      ->group("Checkpoints");
  add_sibling_flags(command, flags.sibling);
}

void find_launched(RunFlags& flags) {
  constexpr const char* kThreads = "threads";
  if (std::getenv("RANK") == nullptr || std::getenv("WORLD_SIZE") == nullptr) {
    if (flags.transport.empty()) flags.transport = kThreads;
    return;
  }
  const WorldOptions world =
      world_options_from_environment([](const char* name) { return std::getenv(name); });
  if (flags.transport.empty()) flags.transport = world.size > 1 ? "auto" : kThreads;
  if (flags.uses_processes()) {
    flags.launched = world;
  } else if (world.size > 1) {
    throw ArgumentError(
        fmt::format("WORLD_SIZE is {}, but with --transport threads the ranks are threads of one "
                    "process; use --transport auto",
                    world.size));
  }
}

RunSetup prepare_run(const CLI::App& command, RunFlags& flags,
                     const std::function<void(const std::string&)>& tell) {
  require_no_pipe(flags);
  PlanRequest request = plan_request(command, flags);
  request.tell = tell;
  require_divisible(flags);
  require_fit(request, flags);
  require_world(flags);
  RunSetup setup;
  const ModelOptions options = model_options(flags);
  setup.data = data_of(flags, options);
  setup.training = setup.data->part({.begin = 0, .end = 1 - flags.holdout});
  setup.held_out = flags.holdout == 0 ? setup.data : setup.data->part({.begin = 1 - flags.holdout});
  const Batch batch = setup.training->take(draw_samples(
      {.seed = flags.seed, .batch = flags.batch_per_replica()}, setup.training->num_samples()));
  setup.loss = make_loss(flags.loss, batch.targets);
  setup.model = make_run_model(options, *setup.data, flags.batch / flags.microbatches, flags.seed);
  if (flags.is_first_process()) {
    setup.plan = make_plan(setup.model, request, setup.loss, batch);
  }
  return setup;
}

RunRanks::RunRanks(RunFlags& flags, RunSetup& setup) {
  if (!flags.uses_processes()) {
    require_no_replay(flags.processes);
    return;
  }
  if (!flags.launched) {
    siblings_ = std::make_unique<SiblingRanks>(flags.sibling, flags.num_processes());
  }
  WorldOptions world = flags.launched ? *flags.launched : siblings_->world();
  world.timeout = flags.processes.join_timeout(world.timeout);
  flags.sibling.has_joined = true;
  world_ = std::make_unique<World>(world);
  processes_.world = world_.get();
  const Mesh mesh(world_->size(), {.pipeline = flags.ranks, .data = flags.replicas});
  const auto ranks_of = [&](Group group) {
    return std::make_shared<ProcessRanks>(
        *world_, ProcessRankOptions{.group = std::move(group),
                                    .transport = transport_kind(flags.transport),
                                    .replay_path = flags.processes.replay_path,
                                    .deadline = flags.deadline()});
  };
  processes_.ranks = ranks_of(mesh.pipeline_of(world_->rank()));
  if (flags.replicas > 1) processes_.replicas = ranks_of(mesh.data_group_of(world_->rank()));
  setup.plan =
      read_plan(decide_for_all(processes_, "plan", [&setup] { return write_plan(setup.plan); }));
}

void RunRanks::tell_failure(const std::exception& error) {
  for (const auto& group : {processes_.ranks, processes_.replicas}) {
    if (group != nullptr) group->give_up(cause_of(error));
  }
}

std::string RunRanks::wait_for_all(const std::string& complaint) {
  for (const std::string& each : exchange_in_run(processes_, "end", complaint)) {
    if (!each.empty()) return each;
  }
  return "";
}

}  // namespace penstock
