// What this process's ranks have called of each other: the flight recorder.
//
// A part of the statistics segment that stands behind `Segment` in the same
// file and is made with the first group of ranks, so a process without one has
// no memory for it. Readable while the process hangs;
// npu_dispatch/stats/collectives.py mirrors the offsets. Any change raises
// kCollectiveLogVersion.
#pragma once

#include "csrc/base/align.h"
#include "csrc/stats/layout.h"

namespace npu {

inline constexpr uint64_t kCollectiveLogVersion = 1;
inline constexpr int kCollectives = 1024;  // the newest, and all not ended
inline constexpr int kCollectiveGroups = 128;
inline constexpr int kShapeWords = 40;

// One call. `state` says what the other words are worth: whoever finds the same
// number before and after them has that call's, and times that only grow.
struct CollectiveEntry {
  enum State : uint64_t {
    kFree,
    kWriting,
    kScheduled,
    kStarted,
    kCompleted,
    kFailed
  };
  static constexpr uint64_t kStates = 8;
  static constexpr uint64_t kMessage = uint64_t{1} << 63;  // of `seq`

  alignas(kCacheLine) Counter state;  // its number * kStates + State
  Counter group;                      // of CollectiveLog::groups
  Counter seq;      // in its group; with kMessage: of send and recv
  Counter name[3];  // text, as all_reduce
  Counter site;     // SiteEntry
  Counter scheduled_ns, started_ns, ended_ns;  // CLOCK_MONOTONIC; 0: not yet
  Counter timeout_ms;
  Counter root;     // 1 + its rank in the group; 0: none
  Counter reduce;   // 1 + the reduction; 0: none
  Counter stream;   // id + (device << 32)
  Counter tensors;  // all of them; what has no room in `shapes` is left out
  // Of each tensor a word, then so many sizes: dimensions | dtype << 8 |
  // is an output << 16 | 1 << 17 | (1 + peer) << 32. Ends with a word 0, or
  // with the array.
  Counter shapes[kShapeWords];
};

// A group this process is in. Written once, `known` last; the description
// comes a little later.
struct CollectiveGroup {
  Counter known;
  Counter rank, size;
  char name[64];
  char description[64];
  char token[40];   // the same for all its ranks, and for no other group
  char ranks[832];  // the world's, as "0-7,16": those who are in it
};

struct CollectiveLog {
  alignas(kCacheLine) Counter version;  // set last; 0: not made yet
  Counter entry_bytes, entries, group_bytes, groups_held;
  Counter next;     // calls so far; added to by any thread
  Counter dropped;  // of them without an entry: all were busy
  Counter groups_made;
  alignas(kCacheLine) CollectiveGroup groups[kCollectiveGroups];
  alignas(kCacheLine) CollectiveEntry log[kCollectives];
};

// What is noted of a tensor.
struct TensorShape {
  const int64_t* sizes;
  size_t dimensions;
  uint8_t dtype;
  bool output;
  int peer;  // -1: none
};

// A call's entry, for the threads that run it. Nothing where all were busy.
class LoggedCollective {
 public:
  LoggedCollective() = default;
  LoggedCollective(CollectiveEntry* entry, uint64_t number)
      : entry_(entry), number_(number) {}
  // One thread at a time: the launcher, or the caller before it has it.
  void started(uint64_t now);
  void ended(uint64_t now, bool failed);

 private:
  void set(CollectiveEntry::State state);

  CollectiveEntry* entry_ = nullptr;
  uint64_t number_ = 0;
};

struct CollectiveCall {
  int group;
  uint64_t seq;
  bool message;
  const char* name;
  uint32_t site;
  uint64_t now;
  uint64_t timeout_ms;
  int root, reduce;  // -1: none
  uint64_t stream;
  const TensorShape* tensors;
  size_t count;
};

// The log, made at the first call. Any thread.
CollectiveLog& collective_log();

// The group's number for CollectiveCall; -1 where there are too many.
int log_group(const char* name, const char* token, const char* ranks, int rank,
              int size);
void describe_group(int group, const char* description);

// Takes an entry for a call that is about to be queued. Any thread.
LoggedCollective log_collective(const CollectiveCall& call);

}  // namespace npu
