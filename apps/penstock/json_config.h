#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace penstock {

// Gives options of `command` the values in the JSON object `config`, by their long names without
// the dashes, unless the command line or an earlier config has set them. A list gives an option
// several values; true sets a flag. Throws Error, which begins with `source`, on values that an
// option does not take.
enum class UnknownKeys {
  Refuse,  // with the nearest name
  Ignore,
};
void apply_config(CLI::App& command, const nlohmann::json& config, const std::string& source,
                  UnknownKeys unknown_keys);

// The same for a file.
void apply_config_file(CLI::App& command, const std::string& path);

// What the options of `command` say now, in the form that apply_config() reads: those named in
// `keys`, as far as they have a value.
nlohmann::json options_as_config(const CLI::App& command,
                                 std::initializer_list<std::string_view> keys);

}  // namespace penstock
