#include "penstock/run/transport/internal/wire.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/transport/internal/size_class.h"
#include "penstock/run/transport/transport.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

constexpr WireLabel kLabel{
    .fingerprint = 7, .step = 3, .key = {.stage = 2, .microbatch = 1, .direction = {}}};

class Memory final : public ReceivedMemory {
 public:
  int num_reuses() const { return num_reuses_; }

 private:
  void reuse() noexcept override { ++num_reuses_; }
  int num_reuses_ = 0;
};

std::vector<std::byte> written(const Message& message) {
  const WireLayout layout = lay_out(message);
  std::vector<std::byte> bytes(layout.size);
  write_message(kLabel, message, layout, bytes.data());
  return bytes;
}

TEST(Wire, HoldsMemoryUntilTheLastTensorIsGone) {
  std::vector<std::byte> bytes = written({torch::ones({3}), 1, torch::ones({2})});
  Memory memory;
  Message message;
  {
    const MemoryHold hold(memory);
    read_message(bytes.data(), memory, message);
  }
  torch::Tensor last = message[2].toTensor();
  EXPECT_GE(last.data_ptr(), bytes.data());
  EXPECT_LT(last.data_ptr(), bytes.data() + bytes.size());
  message.clear();
  EXPECT_EQ(memory.num_reuses(), 0);
  last = torch::Tensor();
  EXPECT_EQ(memory.num_reuses(), 1);
}

torch::Tensor activation_of(std::int64_t count) {
  return torch::arange(0, count, torch::kFloat).requires_grad_() * 2;
}

TEST(Wire, PutsTheLargestTensorLast) {
  const Message message = {activation_of(100), activation_of(300), 1, activation_of(200)};
  constexpr std::size_t kLeast = 4 * 200;
  const WireLayout layout = lay_out(message, kLeast);
  ASSERT_TRUE(layout.has_tail());
  EXPECT_EQ(layout.tail_value, 1U);
  EXPECT_EQ(layout.tail % kWireAlignment, 0U);
  EXPECT_EQ(layout.size - layout.tail, 300 * sizeof(float));
  std::vector<std::byte> bytes(layout.size);
  write_message(kLabel, message, layout, bytes.data(), Tail::LeftOut);
  EXPECT_EQ(read_header(bytes.data(), 7, 4).tail, layout.tail);
  for (std::size_t place = layout.tail; place < layout.size; ++place) {
    ASSERT_EQ(bytes[place], std::byte{0}) << "that is not written here";
  }
  std::memcpy(bytes.data() + layout.tail, message[1].toTensor().data_ptr(), 300 * sizeof(float));
  Memory memory;
  Message received;
  const MemoryHold hold(memory);
  read_message(bytes.data(), memory, received);
  for (const std::size_t index : {0U, 1U, 3U}) {
    EXPECT_TRUE(torch::equal(received[index].toTensor(), message[index].toTensor())) << index;
  }
}

TEST(Wire, HasATailOnlyIfNobodyChangesIt) {
  const auto has_tail = [](const torch::Tensor& tensor) {
    return lay_out({tensor, 1}, 400).has_tail();
  };
  const torch::Tensor parameter = torch::ones({10, 10}).requires_grad_();
  EXPECT_TRUE(has_tail(activation_of(100)));
  EXPECT_FALSE(has_tail(activation_of(99))) << "it is small";
  EXPECT_FALSE(has_tail(torch::ones({100}))) << "it may be written to as soon as it is sent";
  EXPECT_TRUE(has_tail(parameter * 2));
  EXPECT_FALSE(has_tail(parameter));
  EXPECT_FALSE(has_tail(parameter.t()));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(has_tail(parameter.view({100})));
  }
  EXPECT_FALSE(has_tail(torch::ones({10}).expand({10, 10}))) << "it has gaps";
  EXPECT_FALSE(has_tail(torch::ones({100}, torch::kComplexFloat).conj()));
}

TEST(Wire, TellsFormatsAndProgramsApart) {
  std::vector<std::byte> bytes = written({1});
  EXPECT_EQ(read_header(bytes.data(), 7, 4).label, kLabel);
  EXPECT_EQ(message_of([&] { read_header(bytes.data(), 8, 4); }),
            "rank 4 runs another program: it sent the activations of microbatch 1 for stage 2 of "
            "program 0000000000000007, but this rank runs 0000000000000008");
  bytes[0] = std::byte{1};
  EXPECT_EQ(message_of([&] { read_header(bytes.data(), 7, 4); }),
            "rank 4 sent a message in another format (0x50530001, expected 0x50530002); all ranks "
            "must run the same version of Penstock");
}

// Whatever was written over a message, reading it stays inside.
TEST(Wire, RefusesMessagesThatContradictThemselves) {
  const std::vector<std::byte> good =
      written({torch::ones({4, 4}), c10::List<std::int64_t>({1, 2}), 0.5});
  int num_refused = 0;
  for (std::size_t place = sizeof(WireHeader); place < good.size() - 64; ++place) {
    std::vector<std::byte> bad = good;
    bad[place] = std::byte{0xff};
    Memory memory;
    Message message;
    try {
      const MemoryHold hold(memory);
      read_message(bad.data(), memory, message);
      for (const c10::IValue& value : message) {
        if (value.isTensor() && value.toTensor().defined()) value.toTensor().sum();
      }
    } catch (const std::exception&) {
      ++num_refused;
    }
    message.clear();
    EXPECT_EQ(memory.num_reuses(), 1) << "byte " << place;
  }
  EXPECT_GT(num_refused, 0);
}

TEST(SizeClass, IsLargeEnoughAndWastesAQuarterAtMost) {
  std::size_t number = 0;
  for (std::size_t size = 1; size < 100'000; ++size) {
    const SizeClass found = size_class_of(size);
    ASSERT_GE(found.bytes, size);
    ASSERT_EQ(found.bytes % 64, 0U);
    ASSERT_TRUE(size <= 256 || found.bytes < size + size / 4 + 64) << size;
    ASSERT_GE(found.number, number);
    ASSERT_EQ(size_class_of(found.bytes).number, found.number);
    number = found.number;
  }
}

}  // namespace
}  // namespace penstock
