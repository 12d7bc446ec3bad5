#include "shipped_text.h"

#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

// In this order, so that both places give the same text.
constexpr std::array kParts = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "src"};

}  // namespace

std::vector<std::string> shipped_text() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path installed =
      program.parent_path().parent_path() / "share/penstock/text";
  const std::filesystem::path sources = PENSTOCK_SOURCE_DIR;
  for (const std::filesystem::path& folder : {installed, sources}) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / "docs", ignored)) continue;
    std::vector<std::string> paths;
    for (const char* part : kParts) {
      if (std::filesystem::exists(folder / part, ignored)) paths.push_back(folder / part);
    }
    return paths;
  }
  throw Error(
      fmt::format("the text that comes with Penstock is neither in {} nor in {}; give other text "
                  "with --data",
                  quote(installed.string(), 200), quote(sources.string(), 200)));
}

}  // namespace penstock
