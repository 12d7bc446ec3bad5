#include "penstock/plan/schedule/internal/json_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/plan/schedule/internal/action_parser.h"
#include "penstock/plan/schedule/internal/parse_failure.h"

namespace penstock {
namespace {

// Walks over the text and keeps count in a place that outlives the copies of the iterator.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t& count) : at_(at), count_(&count) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  friend bool operator==(const CountingIterator& left, const CountingIterator& right) {
    return left.at_ == right.at_;
  }

 private:
  const char* at_;
  std::size_t* count_;
};

// The parser's reason without the place, which is ours to name, and without the token, which may
// be as long as the file: "... error: syntax error while parsing value - invalid literal; last
// read: '...'; expected '}'" becomes "invalid literal; expected '}'".
std::string reason_of(std::string_view what) {
  constexpr std::string_view kBeforeReason = " - ";
  constexpr std::string_view kBeforeToken = "; last read: '";
  constexpr std::string_view kAfterToken = "'; expected ";
  const std::size_t begin = what.find(kBeforeReason);
  if (begin == std::string_view::npos) return "number out of range";
  what.remove_prefix(begin + kBeforeReason.size());
  const std::size_t token = what.find(kBeforeToken);
  if (token == std::string_view::npos) return std::string(what);
  const std::string_view reason = what.substr(0, token);
  const std::size_t expected = what.rfind(kAfterToken);
  if (expected == std::string_view::npos || expected < token) return std::string(reason);
  return fmt::format("{}; expected {}", reason, what.substr(expected + kAfterToken.size()));
}

}  // namespace

Schedule JsonReader::read() {
  // nlohmann::json takes a zero byte for the end of the text and ignores what follows.
  if (const std::size_t zero = text_.find('\0'); zero != std::string_view::npos) {
    fail(zero, "not JSON: zero byte");
  }
  const char* const begin = text_.data();
  nlohmann::json::sax_parse(CountingIterator(begin, num_read_),
                            CountingIterator(begin + text_.size(), num_read_), this);
  for (const std::string_view name : {"format", "version", "ranks"}) {
    if (!names_.contains(name)) {
      fail(last_end_ - 1, fmt::format("member {} is missing", quote(name)));
    }
  }
  if (schedule_.ranks.empty()) fail(last_end_ - 1, "no ranks; \"ranks\" is an empty array");
  if (first_idle_ && is_lowered(schedule_)) fail(*first_idle_, idle_in_lowered_problem());
  return std::move(schedule_);
}

bool JsonReader::null() {
  return scalar();
}

bool JsonReader::boolean(bool /*value*/) {
  return scalar();
}

bool JsonReader::number_integer(number_integer_t /*value*/) {
  return scalar();
}

bool JsonReader::number_unsigned(number_unsigned_t value) {
  const bool is_version = depth_ == kInDocument && member_ == Member::Version;
  if (!is_version || value != kJsonVersion) return scalar();
  return end_event();
}

bool JsonReader::number_float(number_float_t /*value*/, const string_t& /*literal*/) {
  return scalar();
}

bool JsonReader::string(string_t& value) {
  if (depth_ == kInDocument && member_ == Member::Format) {
    read_format(value);
  } else if (depth_ == kInRank && member_ == Member::Ranks) {
    read_action(value);
  } else {
    refuse_value();
  }
  return end_event();
}

bool JsonReader::binary(binary_t& /*value*/) {
  return scalar();
}

bool JsonReader::start_object(std::size_t /*num_members*/) {
  if (depth_ > 0) refuse_value();
  ++depth_;
  return end_event();
}

bool JsonReader::key(string_t& name) {
  if (depth_ == kInDocument) {
    if (!names_.insert(name).second) {
      fail(token_begin(), fmt::format("member {} occurs twice", quote(name)));
    }
    member_ = name == "format"    ? Member::Format
              : name == "version" ? Member::Version
              : name == "ranks"   ? Member::Ranks
                                  : Member::Other;
  }
  return end_event();
}

bool JsonReader::end_object() {
  --depth_;
  return end_event();
}

bool JsonReader::start_array(std::size_t /*num_elements*/) {
  if (depth_ == kInRanks && member_ == Member::Ranks) {
    schedule_.ranks.emplace_back();
  } else if (depth_ != kInDocument || member_ != Member::Ranks) {
    refuse_value();
  }
  ++depth_;
  return end_event();
}

bool JsonReader::end_array() {
  --depth_;
  return end_event();
}

bool JsonReader::parse_error(std::size_t position, const std::string& /*last_token*/,
                             const nlohmann::detail::exception& error) {
  // `position` counts the bytes read, the offending one among them.
  const std::size_t offset = std::min(position > 0 ? position - 1 : 0, text_.size());
  fail(offset, fmt::format("not JSON: {}", reason_of(error.what())));
}

bool JsonReader::scalar() {
  refuse_value();
  return end_event();
}

void JsonReader::read_format(std::string_view value) {
  if (value == kJsonFormat) return;
  fail(token_begin(),
       fmt::format("unknown format {}; expected {}", quote(value), quote(kJsonFormat)));
}

void JsonReader::read_action(std::string_view value) {
  Action& action = schedule_.ranks.back().emplace_back();
  if (const std::optional<TextProblem> failure = parse_action_into(value, action)) {
    // In a string with escapes, bytes of the value are not bytes of the text: name its beginning.
    const std::size_t begin = token_begin();
    const bool is_verbatim = text_.substr(begin + 1, value.size()) == value;
    const std::size_t offset = is_verbatim ? begin + 1 + failure->offset : begin;
    fail(offset, fmt::format("{}: {}", place_in_ranks(), failure->problem));
  }
  if (action.kind == ActionKind::Idle && !first_idle_) first_idle_ = token_begin();
}

void JsonReader::refuse_value() {
  if (depth_ > 0 && member_ == Member::Other) return;
  const std::string found = quote(token());
  if (depth_ == 0) fail(token_begin(), fmt::format("expected a JSON object, found {}", found));
  std::string expected;
  switch (member_) {
    case Member::Format:
      expected = fmt::format("\"format\" must be {}", quote(kJsonFormat));
      break;
    case Member::Version:
      expected = fmt::format("\"version\" must be {}", kJsonVersion);
      break;
    case Member::Ranks:
    case Member::Other:
      expected = expected_in_ranks();
      break;
  }
  fail(token_begin(), fmt::format("{}, found {}", expected, found));
}

std::string JsonReader::expected_in_ranks() {
  if (depth_ == kInDocument) return "\"ranks\" must be an array with one array per rank";
  if (depth_ == kInRanks) {
    return fmt::format("ranks[{}] must be an array of actions", schedule_.ranks.size());
  }
  schedule_.ranks.back().emplace_back();
  return fmt::format("{} must be the text of an action", place_in_ranks());
}

std::string JsonReader::place_in_ranks() const {
  return fmt::format("ranks[{}][{}]", schedule_.ranks.size() - 1,
                     schedule_.ranks.back().size() - 1);
}

// Where the value of this event begins: only blanks and separators precede it.
std::size_t JsonReader::token_begin() const {
  return std::min(text_.find_first_not_of(" \t\r\n,:", last_end_), text_.size());
}

// Behind a number the parser has read one byte more.
std::string_view JsonReader::token() const {
  const std::size_t begin = token_begin();
  const std::string_view read = text_.substr(begin, num_read_ - begin);
  return read.substr(0, read.find_last_not_of(" \t\r\n,]}") + 1);
}

bool JsonReader::end_event() {
  last_end_ = num_read_;
  return true;
}

void JsonReader::fail(std::size_t offset, const std::string& problem) const {
  throw_parse_error(text_, offset, source_name_, problem);
}

}  // namespace penstock
