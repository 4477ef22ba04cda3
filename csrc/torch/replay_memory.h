// The memory of graphs that are replayed in place of a function's calls, and
// who still holds results in it.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/graph/written.h"

namespace npu {

class ReplayResults;
class Stream;

// Graphs that take turns on one stream share a pool: what one of them has freed
// by the end of its capture, later ones use, also for their results. So a
// replay overwrites its own results and those of later graphs that lie where it
// has something else meanwhile. It may run only while nobody holds any of them.
//
// A thread that uses one of these objects holds the GIL, but a call gives it up
// where it waits for a place in the queue.
class ReplayMemory {
 public:
  ReplayMemory();
  ReplayMemory(const ReplayMemory&) = delete;

  // The pool to capture into.
  uint64_t pool() const { return pool_; }
  // Held from the look at who holds results to the end of the replay.
  // Recursive: a finalizer that Python runs meanwhile may call a function, too.
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  friend class ReplayResults;

  struct Result {
    c10::Storage kept;  // until the graph is gone
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    size_t owners;  // of the storage while nobody holds the result
    bool held() const { return storage.use_count() > owners; }
  };
  using Results = std::vector<std::shared_ptr<Result>>;

  const uint64_t pool_;
  std::recursive_mutex mutex_;
  std::vector<ReplayResults*> graphs_;
};

// The results of one graph that was captured into the memory.
class ReplayResults {
 public:
  // `storages`: of the results that a replay writes. Whoever else owns these
  // now goes on doing so, and does not count as somebody who holds a result.
  ReplayResults(std::shared_ptr<ReplayMemory> memory, const Body& body,
                std::vector<c10::Storage> storages);
  // Results that somebody holds stay as they are.
  ~ReplayResults();
  ReplayResults(const ReplayResults&) = delete;

  ReplayMemory& memory() { return *memory_; }
  // Whether nobody holds anything that a replay overwrites.
  bool are_free();
  // Lets `stream` wait for the streams to which record_stream() has lent what a
  // replay overwrites. Called where are_free().
  void wait_for_borrowers(Stream& stream);

 private:
  const std::shared_ptr<ReplayMemory> memory_;
  const std::vector<Bytes> written_;
  ReplayMemory::Results own_;
  ReplayMemory::Results others_;  // of later graphs, that a replay overwrites
  // Results of graphs that are gone have been freed: nobody knows any more whom
  // they were lent to.
  bool any_stream_borrows_ = false;
};

}  // namespace npu
