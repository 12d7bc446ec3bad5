#include "penstock/run/checkpoint/internal/agree.h"

#include <exception>
#include <future>

#include <fmt/format.h>

#include "penstock/run/checkpoint/checkpoint_error.h"

namespace penstock {
namespace {

// The first letter of what is told.
constexpr char kDone = '+';
constexpr char kFailed = '-';

}  // namespace

std::vector<std::string> agree(const CheckpointGroup& group,
                               const std::function<std::string()>& work) {
  if (!group.exchange) return {work()};
  std::string told;
  try {
    told = kDone + work();
  } catch (const std::exception& error) {
    told = std::string(1, kFailed) + error.what();
  }
  std::vector<std::string> results;
  for (const std::string& text : group.exchange(told)) {
    if (!text.starts_with(kDone)) {
      throw CheckpointError(fmt::format("{} (rank {})", text.substr(1), results.size()));
    }
    results.push_back(text.substr(1));
  }
  return results;
}

void run_together(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::future<void>> others;
  for (std::size_t index = 1; index < count; ++index) {
    others.push_back(std::async(std::launch::async, work, index));
  }
  std::exception_ptr failure;
  const auto keep_first = [&failure](const auto& call) {
    try {
      call();
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  if (count > 0) keep_first([&] { work(0); });
  for (std::future<void>& other : others) keep_first([&] { other.get(); });
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace penstock
