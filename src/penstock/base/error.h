#pragma once

#include <stdexcept>
#include <string>

namespace penstock {

// The root of everything Penstock throws because of bad input or a failing world.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A request that cannot be served as it was asked: an unknown name, a count out of range.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

// Text that does not follow its format. `line` and `column` count from 1, in bytes.
class ParseError : public Error {
 public:
  // what() becomes "<source>:<line>:<column>: <problem>".
  ParseError(const std::string& source, int line, int column, const std::string& problem);

  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& problem() const { return problem_; }

 private:
  int line_;
  int column_;
  std::string problem_;
};

}  // namespace penstock
