#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "byte_size.h"
#include "commands.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/balance/balance.h"
#include "penstock/plan/simulator/profile.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct BalanceFlags {
  std::string profile_path;
  BalanceOptions balance;
  std::string memory;
  std::string format = "text";
};

// The time of the slowest stage, and of all together.
struct Totals {
  Duration slowest{};
  Duration sum{};

  explicit Totals(const std::vector<BalancedStage>& stages) {
    for (const BalancedStage& stage : stages) {
      slowest = std::max(slowest, stage.time());
      sum += stage.time();
    }
  }
  double share_of(const BalancedStage& stage) const {
    return sum == Duration::zero()
               ? 0
               : static_cast<double>(stage.time().count()) / static_cast<double>(sum.count());
  }
};

std::string layer_range(const BalancedStage& stage, const std::vector<LayerCost>& layers) {
  const std::string& first = layers[static_cast<std::size_t>(stage.first_layer)].name;
  const std::string& last = layers[static_cast<std::size_t>(stage.end_layer - 1)].name;
  if (stage.first_layer + 1 == stage.end_layer) return first;
  return fmt::format("{} ... {}", first, last);
}

std::string as_text(const std::vector<BalancedStage>& stages,
                    const std::vector<LayerCost>& layers) {
  const Totals totals(stages);
  std::string text = fmt::format("stage  layers         time ms    share          bytes  names\n");
  for (std::size_t index = 0; index < stages.size(); ++index) {
    const BalancedStage& stage = stages[index];
    const std::string range = fmt::format("{}-{}", stage.first_layer, stage.end_layer - 1);
    text += fmt::format("{:>5}  {:<11} {:>10.6g} {:>6.2f} % {:>14}  {}\n", index, range,
                        to_milliseconds(stage.time()), 100 * totals.share_of(stage), stage.bytes,
                        layer_range(stage, layers));
  }
  const double even = to_milliseconds(totals.sum) / static_cast<double>(stages.size());
  text += fmt::format("slowest stage {:.6g} ms; {} of equal time would take {:.6g} ms\n",
                      to_milliseconds(totals.slowest),
                      counted(static_cast<long long>(stages.size()), "stage", "stages"), even);
  return text;
}

std::string as_json(const std::vector<BalancedStage>& stages,
                    const std::vector<LayerCost>& layers) {
  const Totals totals(stages);
  nlohmann::ordered_json json;
  json["unit"] = "ms";
  json["slowest"] = to_milliseconds(totals.slowest);
  json["sum"] = to_milliseconds(totals.sum);
  json["stages"] = nlohmann::ordered_json::array();
  for (const BalancedStage& stage : stages) {
    nlohmann::ordered_json entry;
    entry["first_layer"] = stage.first_layer;
    entry["num_layers"] = stage.end_layer - stage.first_layer;
    entry["time"] = to_milliseconds(stage.time());
    entry["forward"] = to_milliseconds(stage.forward);
    entry["backward"] = to_milliseconds(stage.backward);
    entry["share"] = totals.share_of(stage);
    entry["bytes"] = stage.bytes;
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      entry["layers"].push_back(layers[static_cast<std::size_t>(layer)].name);
    }
    json["stages"].push_back(entry);
  }
  return json.dump(2) + "\n";
}

void run_balance(const BalanceFlags& flags) {
  const std::string source = flags.profile_path == "-" ? "standard input" : flags.profile_path;
  const Profile profile = read_profile(read_input(flags.profile_path), source);
  if (profile.layers.empty()) {
    throw Error(fmt::format("{}: the profile has no layers to balance", source));
  }
  BalanceOptions options = flags.balance;
  if (!flags.memory.empty()) {
    options.memory_limit_bytes =
        static_cast<std::int64_t>(parse_byte_size(flags.memory).value().bytes());
  }
  const std::vector<BalancedStage> stages = balance_layers(profile.layers, options);
  write_output(
      flags.format == "json" ? as_json(stages, profile.layers) : as_text(stages, profile.layers),
      "-");
}

}  // namespace

void add_balance_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<BalanceFlags>();
  CLI::App* command = program.add_subcommand(
      "balance", "Cut the layers of a model into stages, the slowest as fast as possible");
  command->footer(
      "Example:\n"
      "  penstock balance --profile layers.json --stages 2\n"
      "\n"
      "with, for instance, this layers.json:\n"
      "  {\"format\": \"penstock-profile\", \"version\": 1, \"layers\": [\n"
      "    {\"name\": \"embedding\", \"forward_ms\": 1, \"backward_ms\": 2, \"bytes\": 4000},\n"
      "    {\"name\": \"block\", \"forward_ms\": 2, \"backward_ms\": 4, \"bytes\": 2000},\n"
      "    {\"name\": \"head\", \"forward_ms\": 1, \"backward_ms\": 2, \"bytes\": 4000}]}\n"
      "\n"
      "Stages are runs of layers; each gets at least one. A layer with \"pin\": \"first\" or\n"
      "\"last\" stays in that stage. Among the cuts with the fastest slowest stage, it takes the\n"
      "one with the smallest sum of squared times. The format is in docs/formats/profile.md.");
  command->add_option("--profile", flags->profile_path, "layers as JSON, or - for standard input")
      ->required()
      ->type_name("FILE");
  expect_count(command->add_option("--stages", flags->balance.num_stages, "number of stages"))
      ->required()
      ->type_name("S");
  expect_byte_size(command->add_option("--memory", flags->memory,
                                       "most bytes the layers of a stage may have, also as 40GiB"))
      ->type_name("BYTES");
  expect_choice(command->add_option("--format", flags->format, "text for people, or json"),
                {"text", "json"})
      ->type_name("FORMAT")
      ->capture_default_str();
  command->callback([flags, &answer] {
    run_balance(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
