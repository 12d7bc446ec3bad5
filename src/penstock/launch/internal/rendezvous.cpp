#include "penstock/launch/internal/rendezvous.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "penstock/base/error.h"

namespace penstock {

int find_free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_found = socket >= 0 && bind(socket, generic, length) == 0 &&
                        getsockname(socket, generic, &length) == 0;
  const int error = errno;
  if (socket >= 0) close(socket);
  if (!is_found) throw Error(fmt::format("cannot find a free port ({})", std::strerror(error)));
  return ntohs(address.sin_port);
}

PrivateFolder::PrivateFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(fmt::format("cannot make a folder {} ({})", name, std::strerror(errno)));
  }
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;  // what cannot be removed stays
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace penstock
