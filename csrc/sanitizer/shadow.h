// What is known about each piece of memory: where it was handed out, and who
// touches it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "csrc/sanitizer/box.h"
#include "csrc/sanitizer/clock.h"
#include "csrc/taskqueue/call_site.h"

namespace npu {

// Bytes that all Counted containers of the process hold. Any thread.
extern std::atomic<int64_t> shadow_bytes;

template <typename T>
struct Counted {
  using value_type = T;
  Counted() = default;
  template <typename U>
  Counted(const Counted<U>&) {}
  T* allocate(size_t n) {
    // Relaxed: a statistic.
    shadow_bytes.fetch_add(int64_t(n * sizeof(T)), std::memory_order_relaxed);
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* at, size_t n) {
    shadow_bytes.fetch_sub(int64_t(n * sizeof(T)), std::memory_order_relaxed);
    std::allocator<T>().deallocate(at, n);
  }
  bool operator==(const Counted&) const = default;
};

// The access of one task by one argument. Later accesses are compared with it
// as long as they may be unordered with it.
struct Access {
  Box box;
  const char* op;
  uint64_t number;  // how many of the stream's tasks are done with this one
  uint32_t stream;  // dense index
  CallSite site;
  uint32_t argument;
  bool writes;
  bool foreign;  // of foreign work, interop/foreign.h
  bool stale;    // made before the block was freed and given out again
};

// A block of the allocator or a pinned buffer.
struct Region {
  uintptr_t lo = 0, hi = 0;
  bool live = true;
  bool pinned = false;
  // The host's own code may write it unseen, by an array or a pointer that was
  // taken at escape_site. Only of pinned memory.
  bool escaped = false;
  uint32_t escape_site = 0;
  // When it was handed out to a capture, whose graph may use it after a free;
  // 0: it was not.
  uint64_t captured = 0;
  // The write of a graph captured before that, whose replay does not know whose
  // memory this is now. Until the next write.
  std::shared_ptr<const Access> overwritten;
  // No stream but `stream` has an entry in `accesses`.
  bool one_stream = true;
  uint32_t stream = 0;
  uint32_t owner = 0;  // the stream on which it was handed out
  uint32_t alloc_site = 0, free_site = 0;
  // The sites of the block that was here before.
  uint32_t old_alloc_site = 0, old_free_site = 0;
  std::vector<Access, Counted<Access>> accesses;
  std::vector<uint32_t> recorded;  // streams of record_stream()

  void add(const Access& access, const VectorClock& clock,
           const VectorClock& host);
  // Sets `stream` and `one_stream` by the accesses that there are.
  void note_streams();
};

class Shadow {
 public:
  // The region that holds the address, or null.
  Region* find(uintptr_t address);

  // Calls visit(region) for each that the range meets.
  template <typename Visit>
  void each_in(uintptr_t lo, uintptr_t hi, Visit visit) {
    for (auto at = first_in(lo); at != regions_.end() && at->first < hi; ++at)
      visit(at->second);
  }

  // Notes memory that is handed out. The accesses to regions that it overlaps
  // stay as stale ones.
  Region& give_out(uintptr_t lo, size_t bytes);
  // Forgets whatever is in the range.
  void forget(uintptr_t lo, size_t bytes);
  void clear();

 private:
  using Regions = std::map<uintptr_t, Region, std::less<>,
                           Counted<std::pair<const uintptr_t, Region>>>;
  static constexpr size_t kCached = 4096;

  Regions::iterator first_in(uintptr_t lo);
  Region*& slot(uintptr_t lo) { return cache_[lo / 512 % kCached]; }
  void erase(Regions::iterator at);
  // Makes two regions of one that the address is inside of.
  void cut(uintptr_t address);
  // Makes one region of whatever is in the range.
  Region& make_one(uintptr_t lo, uintptr_t hi);

  Regions regions_;
  // Caches regions by their start: most tensors begin where their block does.
  std::array<Region*, kCached> cache_{};
};

}  // namespace npu
