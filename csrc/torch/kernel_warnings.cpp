#include "csrc/torch/kernel_warnings.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

bool same(const c10::Warning& a, const c10::Warning& b) {
  return a.msg() == b.msg();
}

// More are forgotten: a program that neither waits nor calls anything new may
// warn for days.
constexpr size_t kMost = 256;

struct Warnings {
  std::mutex mutex;
  std::vector<c10::Warning> untold;  // in the order of the kernels
  std::vector<c10::Warning> told;    // by a first call whose kernel is to run
  std::atomic<bool> any{false};      // are untold

  // Whether the program was told already; it is so once.
  bool forget(const c10::Warning& warning) {
    const std::lock_guard lock(mutex);
    const auto at = std::find_if(
        told.begin(), told.end(),
        [&](const c10::Warning& other) { return same(warning, other); });
    if (at == told.end()) return false;
    told.erase(at);
    return true;
  }
  void remember(const std::vector<c10::Warning>& now) {
    const std::lock_guard lock(mutex);
    told.insert(told.end(), now.begin(), now.end());
    // A kernel need not say again what it says once for each process.
    if (told.size() > kMost)
      told.erase(told.begin(), told.end() - ptrdiff_t(kMost));
  }
};
Warnings& warnings() {
  static auto* const instance = new Warnings;
  return *instance;
}

// The handler of all launchers.
class Listener final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    Warnings& all = warnings();
    if (all.forget(warning)) return;
    const std::lock_guard lock(all.mutex);
    if (all.untold.size() >= kMost) return;
    all.untold.push_back(warning);
    // Relaxed: who waits for the kernel sees it, since the wait orders it.
    all.any.store(true, std::memory_order_relaxed);
  }
};
Listener listener;

}  // namespace

void hear_kernel_warnings() {
  constinit thread_local bool hears = false;
  if (hears) [[likely]]
    return;
  hears = true;
  if (stream_of_this_thread())
    c10::WarningUtils::set_warning_handler(&listener);
}

void tell_kernel_warnings() {
  Warnings& all = warnings();
  // Relaxed: see above.
  if (!all.any.load(std::memory_order_relaxed)) [[likely]]
    return;
  std::vector<c10::Warning> now;
  {
    const std::lock_guard lock(all.mutex);
    now.swap(all.untold);
    all.any.store(false, std::memory_order_relaxed);
  }
  for (const c10::Warning& warning : now) c10::warn(warning);
}

FirstCallWarnings::FirstCallWarnings()
    : above_(c10::WarningUtils::get_warning_handler()), guard_(this) {}

FirstCallWarnings::~FirstCallWarnings() { runs(); }

void FirstCallWarnings::again() { known_ = heard_.size(); }

void FirstCallWarnings::runs() {
  if (runs_) return;
  runs_ = true;
  if (heard_.empty()) return;
  // First, so that the kernel finds them. Handlers of Python keep a warning
  // until the call returns and raise nothing here.
  warnings().remember(heard_);
  for (const c10::Warning& warning : heard_) above_->process(warning);
}

void FirstCallWarnings::process(const c10::Warning& warning) {
  if (runs_) {
    if (!warnings().forget(warning)) above_->process(warning);
    return;
  }
  const auto end = heard_.begin() + ptrdiff_t(known_);
  const auto at = std::find_if(heard_.begin(), end, [&](const auto& other) {
    return same(warning, other);
  });
  if (at == end) return heard_.push_back(warning);
  // It was heard before, and is once more: the last of the known ones takes its
  // place.
  std::rotate(at, at + 1, end);
  --known_;
}

}  // namespace npu
