#include "penstock/run/world/internal/local_token.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/run/world/world.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(LocalToken, IsReadByItsUserUntilItEnds) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path own = folder.path("own");
  EXPECT_EQ(read_local_token(own, 1), "");
  {
    LocalToken token(own, 1);
    EXPECT_EQ(token.text().size(), 32U);
    EXPECT_EQ(read_local_token(own, 1), "") << "before the port is known to be ours";
    token.publish();
    EXPECT_EQ(read_local_token(own, 1), token.text());
    EXPECT_EQ(read_local_token(own, 2), "");
    EXPECT_NE(LocalToken(own, 2).text(), token.text());
  }
  EXPECT_EQ(read_local_token(own, 1), "");
  EXPECT_TRUE(std::filesystem::is_empty(own));
}

TEST(LocalToken, TrustsNoFolderThatOthersCanUse) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path open = folder.path("open");
  std::filesystem::create_directory(open);
  std::filesystem::permissions(open, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const auto error_of = [&](const std::function<void()>& call) -> std::string {
    try {
      call();
      return "nothing was thrown";
    } catch (const WorldError& error) {
      return error.what();
    }
  };
  const std::string expected = fmt::format(
      "ranks without a token leave one for each other in \"{}\", but others may look into it; set "
      "PENSTOCK_TOKEN to the same random text for all of them",
      open.string());
  EXPECT_EQ(error_of([&] { const LocalToken token(open, 1); }), expected);
  EXPECT_EQ(error_of([&] { read_local_token(open, 1); }), expected);
  const std::filesystem::path file = folder.path("file");
  std::ofstream(file).put('x');
  EXPECT_THAT(error_of([&] { const LocalToken token(file, 1); }), HasSubstr("that is no folder"));
}

}  // namespace
}  // namespace penstock
