// Finds accesses to the same memory that nothing orders.
//
// A vector clock per stream and one for the host say what is done before a task
// starts. Every region of memory keeps the accesses with which a later one may
// still be unordered. All threads of the host share one clock: what any thread
// has waited for comes before whatever is launched afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "csrc/observe/observer.h"
#include "csrc/sanitizer/clock.h"
#include "csrc/sanitizer/shadow.h"
#include "csrc/sanitizer/sources.h"
#include "csrc/taskqueue/call_site.h"

namespace npu {

enum class FindingKind : uint8_t {
  kWriteWrite,
  kReadWrite,     // the second writes what the first reads, or the reverse
  kReuse,         // the first was made before the block was freed and reused
  kUseAfterFree,  // `first` is the free
  kHostRead,      // the host reads what a queued task still writes
  kHostWrite,     // the host writes what a queued task still reads or writes
  // One of the two is foreign work (interop/foreign.h), which is no operator.
  kUnorderedForeignLaunch,
  // The first is of a replay, whose graph had the memory before the tensor that
  // the second reads. Both graphs share a pool, and this one was captured
  // first.
  kOverwrittenResult,
};

// One of the two accesses that are not ordered.
struct Side {
  const char* op;
  int device;
  int64_t stream;  // -1: the host
  uint64_t task;   // position in its stream
  CallSite site;   // of the launch
  int argument;    // index of the tensor argument
  bool reads, writes;
  uintptr_t lo, hi;  // bounds of what it touches
};

struct Finding {
  FindingKind kind;
  Side first, second;
  uintptr_t block;
  size_t bytes;
  bool pinned;
  int device;  // of the stream that the block was given out on
  int64_t stream;
  uint32_t alloc_site, free_site, old_alloc_site, old_free_site;
};

// What the layer above does. They are called without locks held, and may be
// null.
struct SanitizerHooks {
  // Something was found. True: refuse the task.
  bool (*found)(const Finding* findings, size_t count);
  // Throws for the task that was refused.
  void (*raise)();
  // The calling thread has queued a task that touches pinned memory.
  void (*touched_pinned)();
};

class Sanitizer final : public Observer {
 public:
  explicit Sanitizer(const SanitizerHooks& hooks) : hooks_(hooks) {}

  bool submitted(Stream&, uint64_t position, const Task&) override;
  void published(Stream&, bool refused) override;
  void replays(Stream&, const KernelCall*, size_t, Captured = {}) override;
  void flag_raised(Stream&, uint64_t number, uint64_t flag) override;
  void flag_lowered(uint64_t flag) override;
  void flag_awaited(Stream*, uint64_t flag, bool takes) override;
  void stream_waits(Stream&, Stream& other, uint64_t number) override;
  bool host_waited(Stream&, uint64_t number) override;
  void raise_found() override;
  void host_uses(Stream&, const npu_kernel&, const uint64_t* words) override;
  void allocated(Stream&, const void*, size_t) override;
  void stream_recorded(Stream&, const void*) override;
  void freed(Stream&, const void*, size_t, FreedTo) override;
  void segment_freed(int, const void*, size_t) override;
  void host_allocated(const void*, size_t) override;
  void host_freed(const void*) override;

  // The host is about to run an operator itself on the memory of these words;
  // only pinned memory is checked. Throws as host_uses() does. Any thread.
  void host_touches(const npu_kernel& op, const uint64_t* words);
  // Whether a queued task may still touch pinned memory.
  bool pinned_pending();
  // The program has taken an array or a pointer of this memory, by which it may
  // write it unseen. Where that is pinned memory, the bytes that a task reads
  // are compared with what they were when it was queued.
  void host_escaped(const void* memory);

  // Adds memory that was handed out before the sanitizer was installed.
  void adopt(Stream& owner, const void*, size_t);

  // A task that is about to be queued touches this ordinary host memory. From
  // now on, until host_freed(), it counts as pinned. False: it did already.
  bool host_lent(const void*, size_t);
  // Whether a queued task may still touch the host memory.
  bool host_pending(const void*);

  // Forgets everything, to be installed anew. Called while the sanitizer is not
  // installed, although a thread may still be inside one of its calls.
  void clear();

  struct Counts {
    uint64_t tasks, accesses, findings;
  };
  Counts counts();

 private:
  struct StreamState {
    Stream* stream;
    ClockHistory history;
    uint64_t host_version = 0;  // of the host's clock that it last joined
    // The tasks from `open_from` on wait for a flag that nobody has raised:
    // what comes before them is not known yet.
    uint64_t open_from = ~uint64_t{0};
    uint64_t open_flag = 0;
    bool open() const { return open_flag != 0; }
  };

  static constexpr uint32_t kHost = ~uint32_t{0};  // no stream's index

  // What kind of task a call is part of.
  enum class Origin { kOperator, kForeign, kReplay };
  struct From {
    Origin origin;
    Captured captured = {};  // of kReplay

    // A graph that was captured before or after the region's tensor was made.
    bool before(const Region& region) const {
      return origin == Origin::kReplay && captured.ended < region.captured;
    }
    bool after(const Region& region) const {
      return origin != Origin::kReplay || captured.begun > region.captured;
    }
  };

  static Access access_of(const npu_kernel& kernel, uint32_t i,
                          const uint64_t* words, uint32_t stream,
                          uint64_t number, CallSite site, bool foreign);
  // Notes a read of memory that has escaped, unless a task may write the bytes,
  // or they may not be known.
  void note_source(const Region& region, const Access& read);
  // Finds the sources that the access touches and that have changed
  // (Sources::compare).
  void compare_sources(const Access& access, bool over,
                       std::vector<Finding>& findings);
  void note_changed(const Access& read, std::vector<Finding>& findings);
  // The host knows more than before. True: there is an error to be raised.
  bool compare_known(std::unique_lock<std::mutex> lock);
  void forget_host(const void* memory, size_t bytes);
  // A function that says nothing of the memory that it may write.
  void note_unseen(Stream& stream, uint64_t number);

  // Checks and notes what a task touches. True: the task is to be refused.
  bool examine(Stream& stream, uint64_t position, const KernelCall* calls,
               size_t count, CallSite site, const From& from);
  // Notes a graph's node that sets a flag or waits for one.
  void flag_replayed(Stream& stream, const KernelCall& call);
  uint32_t index_of(Stream& stream);
  bool pending(const Region& region) const;
  void host_joins(uint32_t stream, uint64_t number);
  void check(const Access& access, const Region& region,
             const VectorClock& clock, std::vector<Finding>& findings);
  // A replay writes.
  void note_overwritten(const Access& write, const From& from);
  // Whether the task may read what a replay has overwritten.
  void check_overwritten(const Access& access, Region& region, const From& from,
                         std::vector<Finding>& findings) const;
  Side side(const Access& access) const;
  Finding describe(FindingKind kind, const Region& region) const;
  void check_host(const npu_kernel& op, const uint64_t* words,
                  bool only_pinned);

  const SanitizerHooks hooks_;
  // Whether a wait of this thread owes it an error.
  static inline thread_local bool owes_error_ = false;

  std::mutex mutex_;  // guards everything below
  uint64_t cleared_ = 0;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::unordered_map<Stream*, uint32_t> indices_;
  Stream* last_stream_ = nullptr;
  uint32_t last_index_ = 0;
  VectorClock host_;
  uint64_t host_version_ = 0;
  // Pinned regions that a task may still touch, by address.
  std::vector<uintptr_t> pinned_;
  Sources sources_;
  VectorClock unseen_;  // the last of each stream's tasks of note_unseen()
  // What comes before a task that waits for a raised flag, by flag.
  std::unordered_map<uint64_t, VectorClock> flags_;
  Shadow shadow_;
  Counts counts_{};
};

}  // namespace npu
