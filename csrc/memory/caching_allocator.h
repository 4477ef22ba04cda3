// Stream-ordered device memory: the stream that had a freed block reuses it at
// once; its segment goes back to the driver, and so to others, only when
// nothing queued can still touch it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/align.h"
#include "csrc/memory/memory_stats.h"
#include "csrc/memory/pool.h"
#include "csrc/taskqueue/sole_lock.h"

namespace npu {

class Stream;

struct MemoryInfo {
  uint64_t free, total;  // bytes
};

struct OutOfMemory {
  uint64_t asked, total, free, limit, allocated, reserved;  // bytes
  int device;
  std::string message() const;  // with the advice of torch's own message
};

struct BlockInfo {
  uintptr_t address;
  uint64_t size, requested;
  enum class State { kActive, kPendingFree, kInactive } state;
};
struct SegmentInfo {
  int device;
  uintptr_t address;
  int64_t stream;
  uint64_t pool;  // the private one; 0: none
  bool small;
  uint64_t total, allocated = 0, active = 0, requested = 0;  // bytes
  std::vector<BlockInfo> blocks = {};
};

// The allocator of one device. Any thread.
//
// One lock guards everything. It takes no locked instruction while one thread
// alone allocates and frees, and is never held while host memory is allocated,
// the driver is called or a stream is waited for. A hit holds it for a few
// dozen instructions; only flushing, reading statistics and taking a snapshot
// hold it for longer, and threads that wait for it sleep.
class CachingAllocator {
 public:
  explicit CachingAllocator(int device);
  // Returns all memory; nothing queued may use it any more.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;

  // Memory for `bytes` > 0, aligned to 512 bytes, ordered on `stream`: usable
  // by work submitted to it from now on. Null when there is none left, after
  // returning the cache to the driver and waiting for pending blocks; `why`
  // then tells the sizes. What interrupts a wait (host_wait.h) passes through.
  // private_pool: where it comes from, a pool that somebody holds; 0: none.
  Block* allocate(size_t bytes, Stream& stream, OutOfMemory& why,
                  uint64_t private_pool = 0);

  // A private pool serves those who name it, and captures. The owners of one
  // are a MemPool of torch's and graphs, in any order; what its captures use
  // never serves anybody else. Until the last owner lets go of it, its segments
  // stay here. The rules are for what is allocated by name.
  void hold_pool(uint64_t id, PoolRules rules = {});
  // The free segments go back to the driver, the others when the cache is
  // emptied. Nothing queued uses what was captured. may_wait: waits until the
  // streams have done what they were given; else, and where waiting is not
  // allowed, segments that are still in use go later.
  void release_pool(uint64_t id, bool may_wait);

  // From begin_capture() to end_capture() the memory of `stream` comes from the
  // private pool `id`, which somebody holds. Blocks that another stream used,
  // too, are not used again before the last end_capture(), because no queue
  // orders captured work.
  void begin_capture(Stream& stream, uint64_t id);
  void end_capture(Stream& stream);

  // Gives the block back, in program order. Never waits, never fails. Does
  // nothing in a forked child.
  void free(Block* block);

  // Work already submitted to `stream` may still use the block after free().
  void record_stream(Block* block, Stream& stream);

  // Undoes record_stream(): the caller has waited for that stream itself.
  void erase_stream(Block* block, Stream& stream);

  // Undoes record_stream() for one stream and returns it; null: there is none.
  Stream* take_use(Block* block);

  // What the allocator knows of an address.
  struct Found {
    bool ours = false;        // it has the segment; else the rest says nothing
    bool in_use = false;      // a block that was given out holds the address
    uint64_t graph_pool = 0;  // that keeps the block for its graphs; 0: none
  };
  // The free of the block in use that holds `address` will be reported to
  // memory_freed() (watch.h).
  Found report_free(const void* address);

  // The block in use that starts at `ptr`, or null. Takes time linear in the
  // number of blocks in its segment.
  Block* find(const void* ptr);

  // Returns every unused segment to the driver (waits for pending blocks).
  void empty_cache();

  // Makes the segment that holds `address` one that other processes can open.
  // The caller owns a block in it; no other thread calls share(), and nothing
  // runs on the device meanwhile (engine/stillness.h). The allocator keeps the
  // ownership of `handle`.
  struct Shared {
    int handle = -1;    // -1: it failed, and `why` says why
    size_t offset = 0;  // of the address
    size_t bytes = 0;   // of the segment
    std::string why;
  };
  Shared share(const void* address);
  // Whether share() would only have to look it up.
  bool is_shared(const void* address);

  // Flat statistics under torch's keys, e.g. "allocated_bytes.all.current".
  // inactive_split is sampled by this call: its peak and totals are those of
  // the samples.
  std::map<std::string, int64_t> stats();
  struct Totals {
    uint64_t allocated, max_allocated;  // bytes handed out
    uint64_t reserved, max_reserved;    // bytes held from the driver
  };
  Totals totals();
  uint64_t allocated() { return totals().allocated; }
  uint64_t reserved() { return totals().reserved; }
  void reset_peak_stats();
  void reset_accumulated_stats();
  // Neighbouring inactive blocks appear as one.
  std::vector<SegmentInfo> snapshot();

  // Allows this process at most fraction * total.
  void set_fraction(double fraction);
  double fraction();
  MemoryInfo info();

  // To be called around fork(): no thread is inside the allocator until the
  // process calls its unlock function.
  void lock_for_fork() { lock_.lock(); }
  void unlock_in_parent() { lock_.unlock(); }
  void unlock_in_child() { lock_.unlock_in_child(); }

 private:
  using Lock = std::unique_lock<SoleLock>;

  struct Segment {
    Block* first;
    size_t size;
    int handle = -1;  // of a shared segment
  };
  using Segments = std::map<uintptr_t, Segment>;
  struct PrivatePool {
    int owners = 0;
    PoolRules rules;
  };

  // The moment when `stream` has retired `number` tasks.
  struct Point {
    Stream* stream;
    uint64_t number;
  };

  // The most spare blocks that one request uses: one for a segment, and one for
  // the rest of a split.
  static constexpr int kSparesPerRequest = 2;
  // How many pending blocks each allocation looks at.
  static constexpr int kPendingChecks = 4;
  static constexpr size_t kStreamSlots = 256;

  void free_segment(uintptr_t address, const Segment& segment);
  Segments::iterator segment_of(const void* address);
  StreamPools* known_pools(const Stream& stream) const;
  StreamPools& pools(Stream& stream, uint64_t id, bool captured, Lock& lock);
  void select(const Stream& stream, StreamPools* captured);
  void stock_spares(int count, Lock& lock);
  // Makes room for count() entries; may release the lock meanwhile.
  template <typename T, typename Count>
  static void make_room(std::vector<T>& list, Count count, Lock& lock) {
    for (size_t n; list.capacity() < (n = count());) {
      lock.unlock();
      list.reserve(n + n / 8);
      lock.lock();
    }
  }
  void activate(Block* block, size_t requested);
  Block* allocate_slow(size_t size, size_t bytes, Stream& stream, uint64_t id,
                       OutOfMemory& why);
  Block* take_cached(size_t size, size_t bytes, Stream& stream, uint64_t id);
  Block* take_from_lenders(size_t size, size_t bytes, Stream& stream);
  Block* grow(size_t size, size_t bytes, Stream& stream, uint64_t id);

  bool awaits_others(Block* block);
  void poll_pending(int checks);

  void collect_garbage();
  bool releasable(const Block* block) const;
  std::vector<Point> pending_points();
  std::vector<Point> mark_unused_segments(uint64_t id);
  void release_marked_segments();
  void wait_for(const std::vector<Point>& points);

  void sample_split();
  uint64_t limit() const { return uint64_t(fraction_ * double(total_)); }
  OutOfMemory out_of_memory(size_t asked) const;

  const int device_;
  const uint64_t total_;  // bytes of the device

  // Begins a cache line, which also holds what a hit touches first.
  alignas(kCacheLine) SoleLock lock_;
  PendingBlocks pending_;
  PendingBlocks deferred_;  // until no capture is under way
  int capturing_ = 0;       // streams
  SpareBlocks spares_;
  MemoryStats stats_;
  // The pools of the stream that used slot id % kStreamSlots last.
  std::array<StreamPools*, kStreamSlots> by_id_{};
  StreamPools* all_pools_ = nullptr;
  std::map<uint64_t, PrivatePool> private_pools_;  // those with an owner
  Segments segments_;
  SpareUses spare_uses_;
  // Reserved bytes, including those that the driver is being asked for.
  uint64_t granted_ = 0;
  double fraction_ = 1.0;
};

// The allocator of a device; made at the first call, never destroyed.
CachingAllocator& allocator(int device);
// Whether allocator(device) has been called: statistics must not initialise.
bool allocator_exists(int device);

}  // namespace npu
