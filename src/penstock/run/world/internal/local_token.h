#pragma once

#include <filesystem>
#include <string>

namespace penstock {

// How ranks of one user on one host come by a token that nobody has given them. libtorch's store
// listens on all addresses of a host, so a job needs one on loopback, too: rank 0 makes it up, and
// leaves it in a file that others cannot read.

// Where such files are: a folder of this user in /tmp, which does not depend on the environment, as
// that may differ from rank to rank.
std::filesystem::path local_token_folder();

// That of the job that listens on `port`, in this network namespace.
std::filesystem::path local_token_path(const std::filesystem::path& folder, int port);

// Makes a token, and the folder. Throws WorldError if the folder belongs to somebody else or is
// open to others.
class LocalToken {
 public:
  LocalToken(const std::filesystem::path& folder, int port);
  LocalToken(const LocalToken&) = delete;
  LocalToken& operator=(const LocalToken&) = delete;
  LocalToken(LocalToken&&) = delete;
  LocalToken& operator=(LocalToken&&) = delete;
  ~LocalToken();  // removes the file

  const std::string& text() const { return text_; }

  // From now on it can be read. To be called by who has the port, so that nobody takes the file
  // of another job for its own.
  void publish();

 private:
  std::filesystem::path path_;
  std::string text_;
  bool is_published_ = false;
};

// What is in the file; empty if there is none. Throws WorldError like the constructor.
std::string read_local_token(const std::filesystem::path& folder, int port);

}  // namespace penstock
