#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/run/train/run_model.h"
#include "penstock/run/train/tensor_data.h"
#include "penstock/run/train/token_data.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::vector<std::int64_t> numbers(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous().view({-1});
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

TEST(TextData, IsBytesWithTheirSuccessors) {
  const TemporaryFolder folder;
  const auto data = read_text({folder.write("a.txt", "abcdef")}, {.context = 3});
  EXPECT_EQ(data->num_samples(), 3);
  EXPECT_EQ(data->vocabulary(), 256);
  EXPECT_EQ(data->stride(), 3);
  const Batch batch = data->take({0, 2});
  EXPECT_THAT(numbers(batch.inputs), ElementsAre('a', 'b', 'c', 'c', 'd', 'e'));
  EXPECT_THAT(numbers(batch.targets), ElementsAre('b', 'c', 'd', 'd', 'e', 'f'));
}

TEST(TextData, JoinsTheFilesOfFoldersByPathAndLeavesOutBinaries) {
  const TemporaryFolder folder;
  folder.write("b.txt", "second");
  folder.write("a/inner.txt", "first ");
  folder.write("c.bin", std::string("\0\1\2", 3));
  const auto data = read_text({folder.path()}, {.context = 11});
  EXPECT_THAT(numbers(data->take({0}).inputs),
              ElementsAre('f', 'i', 'r', 's', 't', ' ', 's', 'e', 'c', 'o', 'n'));
  EXPECT_EQ(data->num_samples(), 1);
}

TEST(TextData, RefusesWhatHasNoText) {
  const TemporaryFolder folder;
  const std::string missing = folder.path("missing.txt");
  EXPECT_EQ(message_of([&] { read_text({missing}, {}); }),
            "cannot read \"" + missing + "\": there is no such file or folder");
  const auto empty = folder.write("empty.txt", "");
  EXPECT_EQ(message_of([&] { read_text({empty}, {.context = 8}); }),
            "\"" + empty + "\": it has 0 bytes of text, but a sample takes 9 with its target");
  const auto zeros = folder.write("zeros.txt", std::string(20, '\0'));
  EXPECT_EQ(message_of([&] { read_text({zeros}, {.context = 8}); }),
            "\"" + zeros +
                "\": it has 0 bytes of text, but a sample takes 9 with its target; 1 "
                "file with zero bytes, which text has none of, is left out");
  const auto text = folder.write("text.txt", "some words");
  EXPECT_EQ(message_of([&] {
              read_data({text, folder.path("tokens.bin")}, {.name = "gpt"}, 1);
            }),
            "\"" + folder.path("tokens.bin") +
                "\" is not text, so it must be the only data, but "
                "there are 2");
  EXPECT_THAT(message_of([&] { read_text({text}, {.context = 2, .vocabulary = 100}); }),
              HasSubstr("need a vocabulary of 256, not 100"));
}

TEST(TextData, NamesTheFolderThatCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root can read all folders";
  const TemporaryFolder folder;
  folder.write("all/text.txt", "some words");
  folder.write("all/private/text.txt", "others");
  std::filesystem::permissions(folder.path("all/private"), std::filesystem::perms::none);
  const std::string message = message_of([&] { read_text({folder.path("all")}, {.context = 2}); });
  std::filesystem::permissions(folder.path("all/private"), std::filesystem::perms::owner_all);
  EXPECT_EQ(message, "cannot read \"" + folder.path("all/private") + "\": Permission denied");
}

TEST(TokenData, ReadsTwoAndFourBytes) {
  const TemporaryFolder folder;
  const auto narrow =
      read_tokens(folder.write("t.bin", std::string("\1\0\2\0\0\1", 6)), {.context = 2});
  EXPECT_EQ(narrow->vocabulary(), 257);
  EXPECT_THAT(numbers(narrow->take({0}).targets), ElementsAre(2, 256));
  const auto wide =
      read_tokens(folder.write("t.u32", std::string("\1\0\0\0\0\0\1\0", 8)), {.context = 1});
  EXPECT_THAT(numbers(wide->take({0}).targets), ElementsAre(65536));
}

TEST(TokenData, RefusesDamagedFiles) {
  const TemporaryFolder folder;
  const auto odd = folder.write("odd.bin", "abc");
  EXPECT_THAT(message_of([&] { read_tokens(odd, {}); }),
              AllOf(HasSubstr(odd), HasSubstr("a token takes 2 bytes, but the file has 3")));
  const auto empty = folder.write("empty.bin", "");
  EXPECT_THAT(message_of([&] { read_tokens(empty, {.context = 4}); }),
              HasSubstr("there are 0 tokens, but a sample takes 5"));
  const auto large = folder.write("large.bin", std::string("\1\0\2\0\0\1", 6));
  EXPECT_THAT(message_of([&] { read_tokens(large, {.context = 1, .vocabulary = 10}); }),
              HasSubstr("there is a token 256, but they must be below 10"));
  const auto negative = folder.write("negative.u32", "\xff\xff\xff\xff\xff\xff\xff\xff");
  EXPECT_THAT(message_of([&] { read_tokens(negative, {.context = 1}); }),
              HasSubstr("a token of 2^31 or more"));
  EXPECT_THAT(message_of([&] { read_tokens(folder.path("none.bin"), {}); }),
              HasSubstr("there is no such file"));
}

TEST(TokenData, HasPartsThatDoNotOverlap) {
  const TemporaryFolder folder;
  const auto data = read_text({folder.write("a.txt", "abcdefghij")}, {.context = 2});
  const auto front = data->part({.begin = 0, .end = 0.5});
  const auto back = data->part({.begin = 0.5});
  EXPECT_THAT(numbers(front->take({front->num_samples() - 1}).targets), ElementsAre('d', 'e'));
  EXPECT_THAT(numbers(back->take({0}).inputs), ElementsAre('f', 'g'));
  EXPECT_THAT(message_of([&] { data->part({.begin = 0.9}); }),
              HasSubstr("has 1 tokens in the part from 0.9 to 1 of it, but a sample takes 3"));
  EXPECT_NE(front->fingerprint(), back->fingerprint());
}

TEST(TensorData, ReadsWhatTorchSaves) {
  const TemporaryFolder folder;
  c10::Dict<std::string, torch::Tensor> dict;
  dict.insert("inputs", torch::arange(6).view({3, 2}).to(torch::kFloat));
  const std::vector<char> half = torch::pickle_save(dict);
  const auto without = folder.write("half.pt", {half.begin(), half.end()});
  EXPECT_THAT(message_of([&] { read_tensors(without); }),
              HasSubstr("there is no tensor \"targets\""));
  dict.insert("targets", torch::arange(3));
  const std::vector<char> bytes = torch::pickle_save(dict);
  const auto data = read_tensors(folder.write("data.pt", {bytes.begin(), bytes.end()}));
  EXPECT_EQ(data->num_samples(), 3);
  EXPECT_THAT(numbers(data->take({2, 0}).targets), ElementsAre(2, 0));
  EXPECT_EQ(data->part({.begin = 0.5})->num_samples(), 2);
  dict.insert_or_assign("targets", torch::arange(2));
  const std::vector<char> uneven = torch::pickle_save(dict);
  EXPECT_THAT(message_of([&] {
                read_tensors(folder.write("uneven.pt", {uneven.begin(), uneven.end()}));
              }),
              HasSubstr("the inputs are \"3 x 2\" and the targets \"2\""));
  EXPECT_THAT(message_of([&] { read_tensors(folder.write("text.pt", "no tensors")); }),
              HasSubstr("not a file that torch.save() has written"));
}

TEST(MadeUpData, IsAFunctionOfTheSeed) {
  EXPECT_EQ(make_points(3)->fingerprint(), make_points(3)->fingerprint());
  EXPECT_NE(make_points(3)->fingerprint(), make_points(4)->fingerprint());
  EXPECT_EQ(make_stripes(3)->fingerprint(), make_stripes(3)->fingerprint());
  EXPECT_EQ(make_stripes(3)->rows().inputs.sizes(), torch::IntArrayRef({1024, 1, 12, 12}));
}

TEST(DrawSamples, DependOnSeedAndStepAlone) {
  const SampleDraw draw{.seed = 7, .step = 5, .batch = 64};
  const auto samples = draw_samples(draw, 1000);
  EXPECT_EQ(samples, draw_samples(draw, 1000));
  EXPECT_THAT(samples, Each(AllOf(::testing::Ge(0), ::testing::Lt(1000))));
  EXPECT_NE(samples, draw_samples({.seed = 7, .step = 6, .batch = 64}, 1000));
  EXPECT_NE(samples, draw_samples({.seed = 8, .step = 5, .batch = 64}, 1000));
  // Of the upper half of a long seed, too.
  EXPECT_NE(samples,
            draw_samples({.seed = 7 + (std::uint64_t{1} << 40), .step = 5, .batch = 64}, 1000));
}

}  // namespace
}  // namespace penstock
