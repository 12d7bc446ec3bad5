#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace penstock {

// One line about a command line that CLI11 refused: the problem in our wording, what was meant if
// that can be guessed, and where to read more.
std::string usage_problem(const CLI::App& program, const CLI::ParseError& error);

// Help that opens with what a command does and examples to paste; the options come last. Lines fit
// a terminal of 100 columns.
class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;
};

}  // namespace penstock
