#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

inline constexpr std::string_view kJsonFormat = "penstock-schedule";
inline constexpr int kJsonVersion = 1;

// Reads one schedule from one JSON text, event by event: no document is built, so neither depth
// nor unknown members cost memory, and every event knows its place in the text.
class JsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(std::string_view text, const std::string& source_name)
      : text_(text), source_name_(source_name) {}

  // Throws ParseError. To be called once.
  Schedule read();

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& literal) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(std::size_t num_members) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t num_elements) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override;

 private:
  // The top-level member that the reader is in.
  enum class Member { Format, Version, Ranks, Other };

  // How many arrays and objects are open at each level of {"ranks": [["0F0"]]}.
  static constexpr std::size_t kInDocument = 1;
  static constexpr std::size_t kInRanks = 2;
  static constexpr std::size_t kInRank = 3;

  bool scalar();
  void read_format(std::string_view value);
  void read_action(std::string_view value);
  // Rejects any value that has no business at this place.
  void refuse_value();
  std::string expected_in_ranks();
  std::string place_in_ranks() const;

  std::size_t token_begin() const;
  std::string_view token() const;
  bool end_event();
  [[noreturn]] void fail(std::size_t offset, const std::string& problem) const;

  std::string_view text_;
  const std::string& source_name_;
  Schedule schedule_;
  Member member_ = Member::Other;
  std::set<std::string, std::less<>> names_;
  std::size_t depth_ = 0;
  std::size_t num_read_ = 0;  // bytes that the parser has taken from the text
  std::size_t last_end_ = 0;  // num_read_ after the last event
  std::optional<std::size_t> first_idle_;
};

}  // namespace penstock
