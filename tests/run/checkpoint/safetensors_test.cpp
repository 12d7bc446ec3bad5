#include "penstock/run/checkpoint/safetensors.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/checkpoint/checkpoint_error.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using penstock::testing::read_file;
using penstock::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array kAllTypes = {torch::kDouble, torch::kFloat, torch::kHalf,  torch::kBFloat16,
                                  torch::kLong,   torch::kInt,   torch::kShort, torch::kChar,
                                  torch::kByte,   torch::kBool};

std::string bits_of(const torch::Tensor& tensor) {
  const torch::Tensor packed = tensor.detach().contiguous();
  return {static_cast<const char*>(packed.data_ptr()), packed.nbytes()};
}

// Every type, with random bits (NaNs among them), no dimension, no element, and a view with
// strides.
NamedTensors tensors_of_all_types() {
  torch::manual_seed(3);
  NamedTensors tensors;
  for (const torch::ScalarType type : kAllTypes) {
    const auto bytes = static_cast<std::int64_t>(15 * c10::elementSize(type));
    torch::Tensor raw = torch::randint(256, {bytes}, torch::kByte);
    if (type == torch::kBool) raw = raw.bitwise_and(1);
    const torch::Tensor tensor = raw.view(type).view({5, 3});
    const std::string name = c10::toString(type);
    tensors.emplace_back(name + ".matrix", tensor);
    tensors.emplace_back(name + ".transposed", tensor.t());
    tensors.emplace_back(name + ".scalar", tensor[1][2]);
    tensors.emplace_back(name + ".empty", torch::empty({2, 0, 3}, type));
  }
  return tensors;
}

TEST(Safetensors, KeepEveryBitOfEveryType) {
  const TemporaryFolder folder;
  const NamedTensors tensors = tensors_of_all_types();
  const WrittenFile written =
      write_safetensors(folder.path("all.safetensors"), tensors, {{"format", "pt"}});
  EXPECT_EQ(written.bytes, read_file(folder.path("all.safetensors")).size());
  const SafetensorsFile file(folder.path("all.safetensors"));
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  ASSERT_EQ(file.header().entries.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    const torch::Tensor found = file.read(name);
    EXPECT_EQ(found.scalar_type(), tensor.scalar_type());
    EXPECT_EQ(found.sizes(), tensor.sizes());
    EXPECT_EQ(bits_of(found), bits_of(tensor));
    // Into a tensor that is there, also if it does not lie in one piece.
    const torch::Tensor packed = torch::zeros(tensor.sizes(), tensor.scalar_type());
    file.read_into(name, packed);
    EXPECT_EQ(bits_of(packed), bits_of(tensor));
    if (tensor.dim() != 2) continue;
    const torch::Tensor strided =
        torch::zeros({tensor.size(1), tensor.size(0)}, tensor.scalar_type()).t();
    file.read_into(name, strided);
    EXPECT_EQ(bits_of(strided), bits_of(tensor));
  }
}

TEST(Safetensors, ReadIntoLeavesAParameterALeafAndTellsAutograd) {
  const TemporaryFolder folder;
  write_safetensors(folder.path("one.safetensors"), {{"weight", torch::full({2}, 7.0F)}});
  const torch::Tensor parameter = torch::zeros({2}, torch::requires_grad());
  const auto version = parameter._version();
  SafetensorsFile(folder.path("one.safetensors")).read_into("weight", parameter);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_TRUE(parameter.requires_grad());
  EXPECT_GT(parameter._version(), version);
  EXPECT_EQ(parameter[1].item<float>(), 7.0F);
}

TEST(Safetensors, RefuseTensorsAndNamesThatFilesDoNotHold) {
  const TemporaryFolder folder;
  const std::string path = folder.path("bad.safetensors");
  const torch::Tensor one = torch::ones({1});
  const auto failure = [&](const NamedTensors& tensors) {
    return message_of([&] { write_safetensors(path, tensors); });
  };
  EXPECT_EQ(failure({{"wave", torch::ones({1}, torch::kComplexFloat)}}),
            path + R"(: "wave" is a tensor of ComplexFloat, which safetensors files do not hold)");
  EXPECT_EQ(failure({{"w", one}, {"w", one}}), path + R"(: two tensors are called "w")");
  EXPECT_EQ(failure({{"", one}}), path + R"(: "": a name must not be empty)");
  EXPECT_EQ(failure({{"a\nb", one}}), path + R"(: "a\x0ab": a name must not hold the byte 0x0a)");
  EXPECT_EQ(failure({{"a\xff", one}}), path + R"(: "a\xff": a name must be UTF-8 text)");
  EXPECT_EQ(failure({{"__metadata__", one}}),
            path + R"(: "__metadata__": no tensor can have the name that stands for metadata)");
  EXPECT_THAT(folder.names(), ElementsAre()) << "nothing is left behind";
  write_safetensors(path, {{"w", one}});
  EXPECT_EQ(failure({{"w", one}}), path + ": cannot be created: File exists");
}

TEST(Safetensors, NameWhatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string path = folder.path("one.safetensors");
  write_safetensors(path, {{"weight", torch::ones({2, 3})}});
  const SafetensorsFile file(path);
  EXPECT_EQ(message_of([&] { file.read("wait"); }), path + R"(: has no tensor "wait")");
  EXPECT_EQ(
      message_of([&] {
        file.read_into("weight", torch::ones({3, 2}));
      }),
      path + R"(: "weight" is Float of shape [2, 3], but the model has Float of shape [3, 2])");
  EXPECT_EQ(
      message_of([&] {
        file.read_into("weight", torch::ones({2, 3}, torch::kDouble));
      }),
      path + R"(: "weight" is Float of shape [2, 3], but the model has Double of shape [2, 3])");
}

struct BadHeader {
  const char* text;
  const char* problem;
};

// Headers in front of 8 bytes of data.
TEST(SafetensorsHeader, SaysWhatIsWrong) {
  const std::vector<BadHeader> bad = {
      {"", R"(the header begins with ""; expected "{")"},
      {"[]", R"(the header begins with "["; expected "{")"},
      {R"({"a":)", "is not a JSON text, at byte 6 of 5"},
      {R"({"a)"
       "\xff"
       R"(":{}})",
       "is not a JSON text, at byte 4 of 9"},
      {R"({"a":1})", R"("a": expected an object, found number)"},
      {R"({"a":{}})", R"("a": has no dtype)"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})",
       R"("a": unknown member "x"; expected dtype, shape and data_offsets)"},
      {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})",
       R"("a": unknown dtype "C64"; expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL)"},
      {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,8]}})", R"("a": unknown dtype "1";)"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})",
       R"("a": shape is "2"; expected a list of whole numbers from 0 on)"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", R"("a": shape is "[-2]";)"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", R"("a": shape is "[2.0]";)"},
      {R"({"a":{"dtype":"F32","shape":[2e666],"data_offsets":[0,8]}})",
       "has a number that is too large"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})",
       R"("a": shape is "[9223372036854775808]";)"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})",
       R"("a": data_offsets has 1 number; expected begin and end)"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})",
       R"("a": data_offsets [0, 9] do not lie in the 8 bytes of data that follow)"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       R"("a": data_offsets [8, 0] do not lie in the 8 bytes of data that follow)"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       R"("a": data_offsets [0, 8] make 8 bytes; F32 of shape [3] takes 12)"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       R"(F32 of shape [4611686018427387904, 4] takes more than fit)"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "has 8 bytes of data, but its entries end at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "bytes 0 to 4 of the data belong to no entry"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       R"("b" begins at byte 4 of the data, inside of "a", which ends at 8)"},
      {R"({"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
       R"(has the name "a" twice)"},
      {R"({"a":{"dtype":"F64","dtype":"F64","shape":[],"data_offsets":[0,8]}})",
       R"(has the name "dtype" twice)"},
      {R"({"a\u0000b":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
       "a name must not hold the byte 0x00"},
      {R"({"a\u001bb":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
       "a name must not hold the byte 0x1b"},
      {R"({"":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", "a name must not be empty"},
      {R"({"a":{"dtype":"F64","shape":[[[]]],"data_offsets":[0,8]}})",
       "is more than 3 levels deep; not a file of this kind"},
      {R"({"__metadata__":7})", "__metadata__ is number; expected an object"},
      {R"({"__metadata__":{"a":7}})", R"(__metadata__: "a" is number; expected a text)"},
  };
  constexpr std::uint64_t kDataBytes = 8;
  for (const BadHeader& header : bad) {
    const std::string found =
        message_of([&] { read_safetensors_header(header.text, kDataBytes, "x.safetensors"); });
    EXPECT_THAT(found, HasSubstr(header.problem)) << header.text;
    EXPECT_THAT(found, ::testing::StartsWith("x.safetensors: ")) << header.text;
  }
}

TEST(SafetensorsHeader, SaysWhatIsWrongWithItsLength) {
  const auto failure = [](std::string prefix, std::uint64_t file_bytes) {
    prefix.resize(std::min<std::uint64_t>(file_bytes, 8), '\0');
    return message_of([&] { read_safetensors_length(prefix, file_bytes, "x"); });
  };
  EXPECT_EQ(failure("", 7),
            "x: has 7 bytes; a safetensors file begins with the 8 bytes of its header's length");
  EXPECT_EQ(failure("\x03", 10),
            "x: says that its header has 3 bytes, but only 2 follow; it is "
            "cut short");
  EXPECT_EQ(failure("PK\x03\x04", 1000),
            "x: says that its header has 67324752 bytes, but only 992 follow; it is cut short");
  EXPECT_EQ(failure("\xff\xff\xff\xff", 1000),
            "x: says that its header has 4294967295 bytes; at most 100000000 are allowed, so this "
            "is no safetensors file");
}

std::string run_independent(const std::string& action, const std::string& path) {
  const std::string command =
      fmt::format("python3 '{}/tests/run/checkpoint/independent_safetensors.py' {} '{}' 2>&1",
                  PENSTOCK_SOURCE_DIR, action, path);
  FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> piece = {};
  while (const std::size_t count = fread(piece.data(), 1, piece.size(), pipe)) {
    output.append(piece.data(), count);
  }
  EXPECT_EQ(pclose(pipe), 0) << output;
  return output;
}

// What independent_safetensors.py prints.
std::string listing_of(const SafetensorsFile& file) {
  std::map<std::string, std::string> lines;
  for (const SafetensorsEntry& entry : file.header().entries) {
    std::string shape;
    for (const std::int64_t size : entry.shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
    }
    std::string hex;
    for (const char letter : bits_of(file.read(entry.name))) {
      hex += fmt::format("{:02x}", static_cast<unsigned char>(letter));
    }
    lines[entry.name] =
        fmt::format("{} {} [{}] {}\n", entry.name, to_string(entry.type), shape, hex);
  }
  std::string text;
  for (const auto& [name, line] : lines) text += line;
  return text;
}

TEST(Safetensors, AreReadByAnIndependentParser) {
  const TemporaryFolder folder;
  const std::string path = folder.path("ours.safetensors");
  write_safetensors(path, tensors_of_all_types(), {{"format", "pt"}});
  EXPECT_EQ(run_independent("read", path),
            listing_of(SafetensorsFile(path)) + "{\"format\": \"pt\"}\n");
}

TEST(Safetensors, OfAnIndependentWriterAreRead) {
  const TemporaryFolder folder;
  const std::string path = folder.path("theirs.safetensors");
  run_independent("write", path);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().metadata.at("made by"), "hand");
  EXPECT_EQ(file.header().entries.size(), 11U);
  EXPECT_TRUE(file.read("of.F64").equal(torch::tensor({1.5, -0.0}, torch::kDouble)));
  EXPECT_EQ(file.read("of.F32")[1][0].item<float>(), -3.25F);
  EXPECT_TRUE(file.read("of.F16").equal(torch::tensor({1.0, -2.0, 65504.0}, torch::kHalf)));
  EXPECT_TRUE(file.read("of.BF16").equal(torch::tensor({1.0, -2.0}, torch::kBFloat16)));
  EXPECT_EQ(file.read("of.I64").item<std::int64_t>(), -(std::int64_t{1} << 62));
  EXPECT_TRUE(
      file.read("of.I32").equal(torch::tensor({-1, 2147483647}, torch::kInt).view({1, 1, 2})));
  EXPECT_TRUE(file.read("of.I16").equal(torch::tensor({-1, 0, 32767}, torch::kShort)));
  EXPECT_TRUE(file.read("of.I8").equal(torch::tensor({-128, 127}, torch::kChar)));
  EXPECT_TRUE(file.read("of.U8").equal(torch::tensor({0, 255}, torch::kByte)));
  EXPECT_TRUE(file.read("of.BOOL").equal(torch::tensor({1, 0, 1}, torch::kByte).to(torch::kBool)));
  EXPECT_EQ(file.read("empty \u00fc").sizes(), (std::vector<std::int64_t>{0, 4}));
}

}  // namespace
}  // namespace penstock
