// The memory that replays use: what each graph of a pool overwrites there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/graph/touched.h"

namespace npu {

class Overwrites;
class Stream;

// What a replay has left in a pool and somebody wants to find there.
class Contents {
 public:
  explicit Contents(std::vector<ByteRange> bytes) : bytes_(std::move(bytes)) {}
  virtual ~Contents() = default;
  Contents(const Contents&) = delete;

  bool meets(const std::vector<ByteRange>& written) const;
  // Whether somebody holds them, so that no replay may overwrite them that has
  // a choice.
  virtual bool held() const { return false; }
  // A stream that was lent them with record_stream(), each once; else null.
  virtual Stream* take_borrower() { return nullptr; }
  // Whether nobody will want them any more.
  virtual bool over() const = 0;
  // A replay that overwrites them has been queued.
  virtual void overwritten() {}

 private:
  const std::vector<ByteRange> bytes_;
};

// One for each pool of graphs. Later captures use what earlier ones have freed,
// so that a replay overwrites its own results, and those of other graphs that
// lie where it has something else meanwhile.
class ReplayMemory {
 public:
  ReplayMemory() = default;
  ReplayMemory(const ReplayMemory&) = delete;

  // Held by those who may choose what to replay, from the look at what is held
  // until the replay is queued. Recursive: a finalizer that Python runs
  // meanwhile may call a function, too.
  std::recursive_mutex& turn() { return turn_; }

 private:
  friend class Overwrites;

  std::recursive_mutex turn_;
  std::mutex mutex_;  // guards what follows, and the lists of the graphs
  std::vector<Overwrites*> graphs_;
  std::vector<std::shared_ptr<Contents>> contents_;
};

// What a replay of one graph overwrites.
class Overwrites {
 public:
  Overwrites(std::shared_ptr<ReplayMemory> memory,
             std::vector<ByteRange> written);
  ~Overwrites();
  Overwrites(const Overwrites&) = delete;

  ReplayMemory& memory() { return *memory_; }
  // From now on, the replays of all graphs of the pool look after `contents`,
  // which replays of this graph overwrite in any case.
  void add(std::shared_ptr<Contents> contents);
  // Tells the contents that a replay has been queued.
  void replayed() {
    // Relaxed: whoever wants contents to be looked after orders add() before
    // the replay; the mutex orders the lists.
    if (any_.load(std::memory_order_relaxed)) tell();
  }
  // Whether somebody holds some of the contents.
  bool any_held();
  // Lets `stream` wait for the streams that the contents have been lent to.
  // Called where nobody holds them.
  void wait_for_borrowers(Stream& stream);

 private:
  void tell();
  void forget_what_is_over();

  const std::shared_ptr<ReplayMemory> memory_;
  const std::vector<ByteRange> written_;
  std::atomic<bool> any_{false};  // written with the mutex
  // Some contents are over: nobody knows any more whom they were lent to.
  bool any_stream_borrows_ = false;
  std::vector<std::shared_ptr<Contents>> contents_;
};

}  // namespace npu
