#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace penstock {

// Which numbers an option takes.
struct CountRange {
  int smallest = 1;
  int largest = std::numeric_limits<int>::max();
};

// Makes `option` refuse everything but a whole number in `range`. Returns `option`.
CLI::Option* expect_count(CLI::Option* option, CountRange range = {});

// The numbers of "10,10,8"; empty unless there are `count` of them, none negative or infinite.
std::vector<double> parse_numbers(std::string_view text, std::size_t count);

// Makes `option` refuse everything but numbers in the shape of `example`, such as "1,1,1".
// `example` is a literal. Returns `option`.
CLI::Option* expect_numbers(CLI::Option* option, std::string_view example);

// Makes `option` refuse everything but a number of `range`, bounds included. Returns `option`.
struct NumberRange {
  double smallest = 0;
  double largest = 1;
};
CLI::Option* expect_number(CLI::Option* option, NumberRange range);

// The items of "a,b,c", those that are empty too.
std::vector<std::string> split_list(std::string_view text);

// Makes `option` refuse lists with an item that is empty. Returns `option`.
CLI::Option* expect_names(CLI::Option* option);

// Makes `option` refuse everything but one of `choices`, of which there is at least one, and
// suggest the nearest. The choices are literals: they are kept by reference. Returns `option`.
CLI::Option* expect_choice(CLI::Option* option, std::initializer_list<std::string_view> choices);

}  // namespace penstock
