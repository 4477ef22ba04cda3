#include "csrc/stats/open_wait.h"

#include <unistd.h>

#include "csrc/stats/segment.h"

namespace npu {
namespace {

constexpr uint64_t kThread = 0xffffffff;  // bits of OpenWait::owner
constexpr uint64_t kOneUse = uint64_t{1} << 32;

// Makes the system call once per thread. In a forked child this is still the
// parent's number; it is unique there, too.
uint64_t thread_number() {
  thread_local const uint64_t number = uint64_t(gettid());
  return number;
}

}  // namespace

ListedWait::ListedWait(uint64_t reason, uint32_t site, int device,
                       int64_t stream, uint64_t until, uint64_t now)
    : place_(nullptr) {
  const uint64_t thread = thread_number();
  for (int i = 0; i < kMaxOpenWaits && !place_; ++i) {
    // Most threads find the first place free, since threads have consecutive
    // numbers.
    OpenWait& place =
        segment().waits[(thread + uint64_t(i)) % uint64_t(kMaxOpenWaits)];
    uint64_t owner = place.owner.load(std::memory_order_relaxed);
    if (owner & kThread) continue;
    const uint64_t writing = (owner + kOneUse) | OpenWait::kBeingWritten;
    // Acquire: our words come after those of the place's previous thread.
    if (place.owner.compare_exchange_strong(owner, writing,
                                            std::memory_order_acquire,
                                            std::memory_order_relaxed))
      place_ = &place;
  }
  if (!place_) return;
  // Release: the words below do not become visible before kBeingWritten, so a
  // reader that finds the same owner before and after has its words.
  std::atomic_thread_fence(std::memory_order_release);
  place_->since.store(now, std::memory_order_relaxed);
  place_->reason.store(reason, std::memory_order_relaxed);
  place_->site.store(site, std::memory_order_relaxed);
  place_->stream.store(uint64_t(device) << 32 | uint64_t(stream),
                       std::memory_order_relaxed);
  place_->until.store(until, std::memory_order_relaxed);
  const uint64_t owner = place_->owner.load(std::memory_order_relaxed);
  // Release: whoever sees the thread's number sees its words.
  place_->owner.store((owner & ~kThread) | thread, std::memory_order_release);
}

void ListedWait::end() {
  if (!place_) return;
  const uint64_t owner = place_->owner.load(std::memory_order_relaxed);
  // Release: pairs with the acquire of the next thread that takes the place.
  place_->owner.store(owner & ~kThread, std::memory_order_release);
  place_ = nullptr;
}

}  // namespace npu
