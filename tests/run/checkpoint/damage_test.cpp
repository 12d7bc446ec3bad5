#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/manifest.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "tests/run/checkpoint/small_net.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

// Checkpoints that are damaged are found to be, by file name.
namespace penstock {
namespace {

using penstock::testing::names_in;
using penstock::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

void flip_bit(const std::filesystem::path& path, std::size_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(bit / 8);
  file.seekg(place);
  const int byte = file.get();
  file.seekp(place);
  file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

TEST(CheckpointDamage, OfAnyByteIsFoundByFileName) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW optimizer(net.parameters());
  train(net, optimizer, 0);
  const auto original =
      save_checkpoint(folder.path("run"), {rank_state(net, &optimizer)}, {.step = 1});
  const std::filesystem::path copy = folder.path("copy");
  const auto failure_after = [&](const std::function<void()>& damage) {
    std::filesystem::remove_all(copy);
    std::filesystem::copy(original, copy, std::filesystem::copy_options::recursive);
    damage();
    return message_of([&] { load_checkpoint(copy, {rank_state(net, &optimizer)}); });
  };
  for (const std::string& name : names_in(original)) {
    const std::filesystem::path file = copy / name;
    const std::size_t size = std::filesystem::file_size(original / name);
    // Of the files of tensors: length, header, padding, data; of the manifest: everything.
    for (std::size_t byte = 0; byte < size; byte += 1 + size / 60) {
      EXPECT_THAT(failure_after([&] { flip_bit(file, 8 * byte + byte % 8); }),
                  StartsWith(file.string() + ": is damaged: "))
          << "bit " << byte % 8 << " of byte " << byte;
      EXPECT_THAT(failure_after([&] { std::filesystem::resize_file(file, byte); }),
                  StartsWith(file.string() + ": is damaged: "))
          << "cut to " << byte << " bytes";
    }
    EXPECT_THAT(failure_after([&] { std::filesystem::resize_file(file, size + 1); }),
                StartsWith(file.string() + ": is damaged: "));
    EXPECT_EQ(failure_after([&] { std::filesystem::remove(file); }),
              file.string() + ": cannot be read: No such file or directory");
    EXPECT_THAT(failure_after([&] {
                  std::filesystem::remove(file);
                  std::filesystem::create_directory(file);
                }),
                StartsWith(file.string() + ": cannot be read: it is not a file"));
  }
  EXPECT_EQ(failure_after([] {}), "nothing was thrown");
}

TEST(CheckpointDamage, IsListedWhole) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW optimizer(net.parameters());
  train(net, optimizer, 0);
  const auto path = save_checkpoint(folder.path("run"), {rank_state(net, &optimizer)}, {});
  EXPECT_THAT(CheckpointReader(path).find_damage(), IsEmpty());
  flip_bit(path / "model-00001-of-00001.safetensors", 4000);
  std::filesystem::remove(path / "optimizer-00001-of-00001.safetensors");
  EXPECT_THAT(
      CheckpointReader(path).find_damage(),
      ElementsAre(HasSubstr("model-00001-of-00001.safetensors: is damaged: its SHA-256 is "),
                  EndsWith("safetensors: cannot be read: No such file or directory")));
}

TEST(CheckpointDamage, IsNoReasonToGoOnWithAnOlderOne) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  Net net(1);
  for (const std::int64_t step : {1, 2}) save_checkpoint(run, {rank_state(net)}, {.step = step});
  std::filesystem::resize_file(run + "/step-00000002/manifest.json", 100);
  EXPECT_EQ(message_of([&] { latest_checkpoint(run); }),
            run +
                "/step-00000002/manifest.json: is damaged: its 100 bytes do not have the "
                "checksum at their end; remove " +
                run + "/step-00000002 to go on from the checkpoint before it");
}

TEST(CheckpointDamage, OfTensorsHasAWayOutToo) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  Net net(1);
  for (const std::int64_t step : {1, 2}) save_checkpoint(run, {rank_state(net)}, {.step = step});
  const auto failure_of = [&](const std::string& checkpoint) {
    return message_of([&] { load_checkpoint(checkpoint, {rank_state(net)}); });
  };
  const std::string way_out =
      "; remove " + run + "/step-00000002 to go on from the checkpoint before it";
  const std::string file = "/model-00001-of-00001.safetensors";
  const std::string newer = run + "/step-00000002";
  const std::string older = run + "/step-00000001";
  flip_bit(newer + file, 4000);
  EXPECT_THAT(failure_of(newer), AllOf(HasSubstr("its SHA-256 is "), EndsWith(way_out)));
  std::filesystem::resize_file(newer + file, 100);
  EXPECT_THAT(failure_of(newer), AllOf(HasSubstr("it has 100 bytes"), EndsWith(way_out)));
  std::filesystem::remove(newer + file);
  EXPECT_EQ(failure_of(newer),
            newer + file + ": cannot be read: No such file or directory" + way_out);
  std::filesystem::remove(older + file);
  EXPECT_THAT(failure_of(older), Not(HasSubstr("remove")));  // there is none before it
}

// Manifests that somebody has made, checksum and all.
TEST(CheckpointManifest, SaysWhatIsWrong) {
  const CheckpointFile file{.name = "m.safetensors",
                            .content = CheckpointContent::Model,
                            .bytes = 1,
                            .sha256 = std::string(64, 'a'),
                            .entries = {"w"}};
  const auto failure = [&](const CheckpointManifest& manifest) {
    return message_of([&] { read_manifest(write_manifest(manifest), "manifest.json"); });
  };
  const CheckpointManifest good{.position = {.step = 3, .seed = 4, .data = R"({"x":[1,null]})"},
                                .optimizer = "AdamW",
                                .scalars = {{"w/step", 3}},
                                .aliases = {{"v", "w"}},
                                .files = {file}};
  EXPECT_EQ(read_manifest(write_manifest(good), "manifest.json"), good);
  const auto with = [&](const std::function<void(CheckpointManifest&)>& change) {
    CheckpointManifest changed = good;
    change(changed);
    return failure(changed);
  };
  EXPECT_EQ(with([](auto& manifest) { manifest.files[0].name = "../m.safetensors"; }),
            R"(manifest.json: "../m.safetensors" cannot be the name of a file of a checkpoint)");
  EXPECT_EQ(with([](auto& manifest) { manifest.files[0].sha256 = "abc"; }),
            R"(manifest.json: sha256 of "m.safetensors" is not 64 hexadecimal digits)");
  EXPECT_EQ(with([](auto& manifest) {
              manifest.files[0].entries = {"w", "w"};
            }),
            R"(manifest.json: lists the entry "w" twice)");
  EXPECT_EQ(with([](auto& manifest) { manifest.files.push_back(manifest.files[0]); }),
            R"(manifest.json: lists "m.safetensors" twice)");
  EXPECT_EQ(with([](auto& manifest) { manifest.position.step = -1; }),
            "manifest.json: step is not a whole number from 0 on");
  EXPECT_THAT(message_of([] { read_manifest("{}", "manifest.json"); }),
              StartsWith("manifest.json: is damaged: its 2 bytes do not have the checksum"));
}

}  // namespace
}  // namespace penstock
