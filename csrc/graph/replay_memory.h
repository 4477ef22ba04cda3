// The memory that replays use: what each graph of a pool overwrites there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace npu {

class Body;
class Overwrites;
class Stream;

// The bytes [lo, hi).
struct ByteRange {
  uintptr_t lo, hi;
};

// All that a replay reads (NPU_READ) or writes (NPU_WRITE), by address: ranges
// that neither meet nor touch. What lies between the elements of a strided
// tensor is included.
std::vector<ByteRange> bytes_of(const Body& body, uint32_t access);

// Whether one of `ranges`, which are as bytes_of() returns them, has a byte of
// [lo, hi).
bool meet(const std::vector<ByteRange>& ranges, uintptr_t lo, uintptr_t hi);

// Data that a replay has left in a pool and that a tensor, or a backward, still
// reads there. Others derive from it.
class Contents {
 public:
  explicit Contents(std::vector<ByteRange> bytes) : bytes_(std::move(bytes)) {}
  virtual ~Contents() = default;
  Contents(const Contents&) = delete;

  bool meets(const std::vector<ByteRange>& written) const;
  // Whether a tensor holds them, other than one for each place in `given_up`
  // where they are. A caller that may choose which graph it replays
  // (python/replayed.cpp) then chooses one that does not overwrite them.
  virtual bool held(std::span<const void* const> /*given_up*/) const {
    return false;
  }
  // A stream for which record_stream() was called, each such stream once; null
  // when there is no further one.
  virtual Stream* take_borrower() { return nullptr; }
  // Whether no one will read them any more.
  virtual bool over() const = 0;
  // A replay that overwrites them has been queued.
  virtual void overwritten() {}

 private:
  const std::vector<ByteRange> bytes_;
};

// One for each pool of graphs. A later capture uses memory that an earlier one
// has freed. So a replay overwrites the results of its own last replay, and
// results of other graphs that lie in memory which it uses for something else.
struct ReplayMemory {
  // Held by a caller that may choose what to replay, from the look at what is
  // held until the replay is queued. Recursive: a finalizer that Python runs
  // meanwhile may call a function, too.
  std::recursive_mutex turn;
  std::mutex mutex;  // guards what follows, and the lists of the graphs
  std::vector<Overwrites*> graphs;
  std::vector<std::shared_ptr<Contents>> contents;
};

// What a replay of one graph overwrites.
class Overwrites {
 public:
  // The memory outlives it.
  Overwrites(ReplayMemory& memory, std::vector<ByteRange> written);
  ~Overwrites();
  Overwrites(const Overwrites&) = delete;

  ReplayMemory& memory() { return memory_; }
  // From now on, the replays of all graphs of the pool look after `contents`,
  // which replays of this graph overwrite in any case.
  void add(std::shared_ptr<Contents> contents);
  // Tells the contents that a replay has been queued.
  void replayed() {
    // Relaxed: whoever wants contents to be looked after orders add() before
    // the replay; the mutex orders the lists.
    if (any_.load(std::memory_order_relaxed)) tell();
  }
  // Whether somebody holds some of the contents. `given_up`: where the memory
  // of tensors begins that the caller gives the graph to be overwritten.
  bool any_held(std::span<const void* const> given_up = {});
  // Lets `stream` wait for the streams that the contents have been lent to.
  // Called where nobody holds them.
  void wait_for_borrowers(Stream& stream);

 private:
  void tell();
  void forget_what_is_over();

  ReplayMemory& memory_;
  const std::vector<ByteRange> written_;
  std::atomic<bool> any_{false};  // written with the mutex
  // Some contents are over: nobody knows any more whom they were lent to.
  bool any_stream_borrows_ = false;
  std::vector<std::shared_ptr<Contents>> contents_;
};

}  // namespace npu
