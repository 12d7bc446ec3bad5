#include "tests/run/support/store_backend.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/libtorch/c10d_backend.h"

namespace penstock {
namespace {

class SentWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

class ReceiveWork final : public c10d::Work {
 public:
  ReceiveWork(StorePtr store, std::string key, at::Tensor destination)
      : store_(std::move(store)), key_(std::move(key)), destination_(std::move(destination)) {}

  bool isCompleted() override {
    if (is_done_ || !store_->check({key_})) return is_done_;
    const std::vector<std::uint8_t> bytes = store_->get(key_);
    store_->deleteKey(key_);
    TORCH_CHECK(bytes.size() <= destination_.nbytes(), "a message has ", bytes.size(),
                " bytes, but there is room for ", destination_.nbytes());
    std::memcpy(destination_.data_ptr(), bytes.data(), bytes.size());
    is_done_ = true;
    return true;
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    TORCH_CHECK(is_done_, "the caller was to ask first");
    return true;
  }

 private:
  StorePtr store_;
  std::string key_;
  at::Tensor destination_;
  bool is_done_ = false;
};

class StoreBackend final : public Backend {
 public:
  StoreBackend(StorePtr store, int rank, int size)
      : Backend(rank, size), store_(std::move(store)) {}

  const std::string getBackendName() const override { return "store"; }

  WorkPtr send(std::vector<at::Tensor>& tensors, int to_rank, int tag) override {
    const at::Tensor& source = tensors.at(0);
    const auto* begin = static_cast<const std::uint8_t*>(source.data_ptr());
    const std::vector<std::uint8_t> bytes(begin, begin + source.nbytes());
    store_->set(next_key(getRank(), to_rank, tag), bytes);
    return c10::make_intrusive<SentWork>();
  }

  WorkPtr recv(std::vector<at::Tensor>& tensors, int from_rank, int tag) override {
    return c10::make_intrusive<ReceiveWork>(store_, next_key(from_rank, getRank(), tag),
                                            tensors.at(0));
  }

 private:
  // Of the next message on a way: both ends count alike.
  std::string next_key(int from_rank, int to_rank, int tag) {
    const std::lock_guard lock(mutex_);
    return fmt::format("{} to {}, tag {}, {}", from_rank, to_rank, tag,
                       counts_[{from_rank, to_rank, tag}]++);
  }

  StorePtr store_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, int> counts_;
};

}  // namespace

MakeBackend store_backend() {
  return [](const StorePtr& store, int rank, int size) -> BackendPtr {
    return c10::make_intrusive<StoreBackend>(store, rank, size);
  };
}

}  // namespace penstock
