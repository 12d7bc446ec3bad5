#include "tests/run/executor/allocation_log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

namespace penstock {
namespace {

// The addresses that a program or library is loaded to.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool contains(std::uintptr_t address) const { return begin <= address && address < end; }
};

// Who called operator new, innermost first, as far as it is needed to tell whose call it was.
struct Allocation {
  std::array<std::uintptr_t, 8> callers;
  std::size_t num_callers;
  bool is_libtorchs;
};

constexpr std::size_t kMostAllocations = 1 << 15;
std::array<Allocation, kMostAllocations> allocations;
std::atomic<std::size_t> num_logged = 0;
std::atomic<bool> is_logging = false;
thread_local bool is_in_log = false;  // what the log itself allocates
Range program;
Range standard_library;

int find_ranges(dl_phdr_info* info, std::size_t /*size*/, void* /*data*/) {
  const std::string_view name = info->dlpi_name;
  const bool is_standard = name.find("libstdc++") != std::string_view::npos;
  if (!name.empty() && !is_standard) return 0;
  // The program comes first; the other object without a name is the kernel's.
  Range& range = is_standard ? standard_library : program;
  if (range.end != 0) return 0;
  range.begin = info->dlpi_addr;
  for (int index = 0; index < info->dlpi_phnum; ++index) {
    const auto& header = info->dlpi_phdr[index];
    if (header.p_type == PT_LOAD) {
      range.end = std::max(range.end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
    }
  }
  return 0;
}

_Unwind_Reason_Code add_caller(_Unwind_Context* context, void* data) {
  auto& allocation = *static_cast<Allocation*>(data);
  // The address of the call, which is in front of the address of return.
  const std::uintptr_t address = _Unwind_GetIP(context) - 1;
  if (standard_library.contains(address)) return _URC_NO_REASON;
  allocation.is_libtorchs = !program.contains(address);
  if (allocation.is_libtorchs || allocation.num_callers == allocation.callers.size()) {
    return _URC_END_OF_STACK;
  }
  allocation.callers[allocation.num_callers++] = address;
  return _URC_NO_REASON;
}

void log_allocation() {
  if (!is_logging.load(std::memory_order_relaxed) || is_in_log) return;
  is_in_log = true;
  const std::size_t index = num_logged.fetch_add(1);
  if (index < kMostAllocations) {
    allocations[index] = {};
    _Unwind_Backtrace(add_caller, &allocations[index]);
  }
  is_in_log = false;
}

// Code of the standard library and of libtorch's headers, which was compiled into this program.
bool is_library_code(std::string_view mangled) {
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "_Zn",     "_ZNSt",    "_ZNKSt", "_ZSt",    "_ZN9__gnu_cxx",
      "_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [mangled](std::string_view prefix) { return mangled.starts_with(prefix); });
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

// The function that allocated, or nothing if it is libtorch's.
std::string own_caller(const Allocation& allocation) {
  for (std::size_t index = 1; index < allocation.num_callers; ++index) {  // 0 is the log itself
    Dl_info info;
    const bool is_known =
        dladdr(reinterpret_cast<const void*>(allocation.callers[index]), &info) != 0 &&
        info.dli_sname != nullptr;
    if (!is_known) return "a function without a name";
    if (!is_library_code(info.dli_sname)) return demangled(info.dli_sname);
  }
  return allocation.is_libtorchs ? "" : "a function far up the stack";
}

}  // namespace

void AllocationLog::start() {
  dl_iterate_phdr(find_ranges, nullptr);
  num_logged = 0;
  is_logging = true;
}

void AllocationLog::stop() {
  is_logging = false;
}

int AllocationLog::num_allocations() {
  return static_cast<int>(num_logged.load());
}

std::vector<std::string> AllocationLog::own() {
  std::vector<std::string> callers;
  for (std::size_t index = 0; index < std::min(num_logged.load(), kMostAllocations); ++index) {
    std::string caller = own_caller(allocations[index]);
    if (!caller.empty()) callers.push_back(std::move(caller));
  }
  return callers;
}

}  // namespace penstock

void* operator new(std::size_t size) {
  penstock::log_allocation();
  void* memory = std::malloc(std::max<std::size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  penstock::log_allocation();
  const auto step = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(step, (size + step - 1) / step * step);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
