#include "json_config.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "schedule_io.h"
#include "suggestion.h"

namespace penstock {
namespace {

constexpr std::string_view kConfigKey = "config";

// Those that a user may set, without the dashes.
std::vector<std::string> keys_of(const CLI::App& command) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != kConfigKey) keys.push_back(name);
    }
  }
  return keys;
}

std::string text_of(const nlohmann::json& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw Error(fmt::format("{}: expected a text, a number, true or false, found {}", place,
                          quote(value.dump())));
}

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

void set_option(CLI::Option& option, const nlohmann::json& value, const std::string& place) {
  if (is_flag(option) && !value.is_boolean()) {
    throw Error(fmt::format("{}: expected true or false, found {}", place, quote(value.dump())));
  }
  if (is_flag(option) && !value.get<bool>()) return;
  if (value.is_array()) {
    for (const auto& one : value) option.add_result(text_of(one, place));
    if (value.empty()) return;
  } else {
    option.add_result(text_of(value, place));
  }
  try {
    option.run_callback();
  } catch (const CLI::Error& error) {
    // CLI11 puts the name of the option in front.
    const std::string_view message = error.what();
    const std::size_t name_end = message.find(": ");
    throw Error(
        fmt::format("{}: {}", place,
                    name_end == std::string_view::npos ? message : message.substr(name_end + 2)));
  }
}

}  // namespace

void apply_config(CLI::App& command, const nlohmann::json& config, const std::string& source,
                  UnknownKeys unknown_keys) {
  if (!config.is_object()) {
    throw Error(fmt::format("{}: expected an object such as {{\"steps\": 100}}, found {}", source,
                            quote(config.dump())));
  }
  const std::vector<std::string> keys = keys_of(command);
  for (const auto& [key, value] : config.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      if (unknown_keys == UnknownKeys::Ignore) continue;
      const std::vector<std::string_view> views(keys.begin(), keys.end());
      throw Error(fmt::format("{}: unknown key {}{}", source, quote(key), suggestion(key, views)));
    }
    CLI::Option& option = *command.get_option("--" + key);
    if (option.count() > 0) continue;
    set_option(option, value, fmt::format("{}: {}", source, key));
  }
}

void apply_config_file(CLI::App& command, const std::string& path) {
  const std::string text = read_input(path);
  const std::string source = path == "-" ? "standard input" : path;
  nlohmann::json config;
  try {
    config = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t end = std::min(text.size(), error.byte);
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    throw Error(fmt::format("{}:{}: not JSON; expected an object such as {{\"steps\": 100}}",
                            source, line));
  }
  apply_config(command, config, source, UnknownKeys::Refuse);
}

nlohmann::json options_as_config(const CLI::App& command,
                                 std::initializer_list<std::string_view> keys) {
  nlohmann::json config = nlohmann::json::object();
  for (const std::string_view key : keys) {
    const CLI::Option* const option = command.get_option("--" + std::string(key));
    if (is_flag(*option)) {
      config[key] = option->count() > 0;
    } else if (option->count() > 0) {
      const std::vector<std::string>& values = option->results();
      config[key] = values.size() == 1 ? nlohmann::json(values.front()) : nlohmann::json(values);
    } else if (!option->get_default_str().empty()) {
      config[key] = option->get_default_str();
    }
  }
  return config;
}

}  // namespace penstock
