#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

// Throws ParseError for the byte at `offset` of `text`, whose line and column it counts.
[[noreturn]] void throw_parse_error(std::string_view text, std::size_t offset,
                                    const std::string& source_name, const std::string& problem);

// `text` without the UTF-8 byte order mark that some editors put first. Throws ParseError on a
// text so long that its lines, columns or cells could not be counted in an int.
std::string_view checked_file_text(std::string_view text, const std::string& source_name);

// What both file formats say about an idle slot in a lowered schedule.
std::string idle_in_lowered_problem();

}  // namespace penstock
