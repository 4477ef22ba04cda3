// The process's allocators, one per device, and their settings.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"

namespace npu {
namespace {

std::atomic<CachingAllocator*> allocators_[kMaxDeviceBlocks];
// Guards the making of an allocator and of settings. Taken before an
// allocator's own lock.
std::mutex making_;

void before_fork() {
  making_.lock();
  for (auto& slot : allocators_)
    if (auto* a = slot.load(std::memory_order_relaxed)) a->lock_for_fork();
}

void after_fork_in_parent() {
  for (auto& slot : allocators_)
    if (auto* a = slot.load(std::memory_order_relaxed)) a->unlock_in_parent();
  making_.unlock();
}

void after_fork_in_child() {
  for (auto& slot : allocators_)
    if (auto* a = slot.load(std::memory_order_relaxed)) a->unlock_in_child();
  new (&making_) std::mutex;
}

// Not inlined: its registers would be saved at each call of allocator().
[[gnu::noinline, gnu::cold]] CachingAllocator& make(int device) {
  std::lock_guard lock(making_);
  auto& slot = allocators_[device];
  if (auto* made = slot.load(std::memory_order_relaxed)) return *made;
  static const int registered =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  auto* made = new CachingAllocator(device);
  // Release: pairs with the acquire in allocator().
  slot.store(made, std::memory_order_release);
  return *made;
}

}  // namespace

CachingAllocator& allocator(int device) {
  if (auto* made = allocators_[device].load(std::memory_order_acquire))
      [[likely]]
    return *made;
  return make(device);
}

bool allocator_exists(int device) {
  return allocators_[device].load(std::memory_order_acquire) != nullptr;
}

void set_allocator_settings(const AllocatorSettings& settings) {
  static auto* const all = new std::deque<AllocatorSettings>;
  const auto is_fraction = [](double n) { return n >= 0 && n <= 1; };
  if (!is_fraction(settings.memory_fraction) ||
      !is_fraction(settings.gc_threshold))
    throw std::invalid_argument("npu: these are no settings of an allocator");
  std::lock_guard lock(making_);
  AllocatorSettings& made = all->emplace_back(settings);
  made.rounds = std::ranges::any_of(made.roundup_divisions,
                                    [](uint32_t n) { return n > 1; });
  // Release: readers find the settings filled.
  detail::settings.store(&made, std::memory_order_release);
  if (made.memory_fraction == 0) return;
  for (auto& slot : allocators_)
    if (auto* a = slot.load(std::memory_order_relaxed))
      a->set_fraction(made.memory_fraction);
}

}  // namespace npu
