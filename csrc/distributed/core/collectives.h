// The flight recorder: which collectives and messages this process has called.
//
// It is a part of the statistics segment, behind `Segment` in the same file. It
// is made with the first group of ranks, so a process without one has no memory
// for it. It can be read while the process hangs;
// npu_dispatch/observe/segment/layout.py mirrors the offsets. Any change
// raises kCollectiveLogVersion.
#pragma once

#include "csrc/base/align.h"
#include "csrc/stats/layout.h"

namespace npu {

inline constexpr uint64_t kCollectiveLogVersion = 3;
inline constexpr int kCollectives = 1024;  // unfinished calls stay, then newest
inline constexpr int kCollectiveGroups = 128;
inline constexpr int kShapeWords = 40;
inline constexpr int kCollectiveTotals = 256;
inline constexpr int kPlaceWords = 19;

// One call. `state` says whether the other words are valid: whoever finds the
// same number in it before and after reading them has read those of that call,
// of which only the times may have been set meanwhile.
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

  alignas(kCacheLine) Counter state;  // number of the call * kStates + State
  Counter group;                      // index in CollectiveLog::groups
  Counter seq;      // in its group; send and recv (kMessage) count separately
  Counter name[3];  // text, as all_reduce
  Counter site;     // SiteEntry
  Counter scheduled_ns, started_ns, ended_ns;  // CLOCK_MONOTONIC; 0: not yet
  Counter all_here_ns;  // when every rank had called; 0: not yet, or one rank
  Counter timeout_ms;
  Counter root;     // 1 + the root's rank in the group; 0: none
  Counter reduce;   // 1 + the reduction; 0: none
  Counter stream;   // id + (device << 32)
  Counter tensors;  // how many; those without room in `shapes` count, too
  // For each tensor the word dimensions | dtype << 8 | is an output << 16 | 1
  // << 17 | (1 + peer) << 32, then its sizes. Ends with a word 0, or with the
  // array.
  Counter shapes[kShapeWords];
};

// A group that this process is in. It is written once, `known` last; the
// description follows a little later.
struct CollectiveGroup {
  Counter known;
  Counter rank, size;
  char name[64];
  char description[64];
  char token[40];   // the same on all ranks of the group, and of no other
  char ranks[832];  // the group's members by their ranks of the world: "0-7,16"
};

// The calls of one name in one group. Written once, `known` last; the counts
// are added to by any launcher.
struct CollectiveTotals {
  alignas(kCacheLine) Counter known;
  Counter group;  // index in CollectiveLog::groups
  char name[24];  // "all_reduce"
  Counter failed;
  Counter bytes;         // that the rank gave, or else received
  Counter queued_ns;     // from the call to its start: behind other work
  Counter waited_ns;     // of run_ns.sum: until the last rank had called, too
  Counter exposed_ns;    // of run_ns.sum: no other stream of the device ran
  Counter host_wait_ns;  // of exposed_ns: host threads waited for the device
  TimeHistogram run_ns;  // from start to end, of calls that did not fail
};

// A host thread's place, as this process's own sampler has last seen it. One
// writer. A reader that finds the same even `changes` before and after the
// other words has read them of one sample.
struct HostPlace {
  alignas(kCacheLine) Counter changes;
  Counter seen_ns;    // CLOCK_MONOTONIC; 0: never. The sampler runs each
                      // second, as soon as it has Python's lock.
  Counter since_ns;   // since when every sample has been this line
  Counter ooms;       // allocations that have failed, in all
  Counter oom_ns;     // when `ooms` was last seen to have grown; 0: never
  Counter in_loader;  // 1: within torch.utils.data
  Counter line[kPlaceWords];  // text, as SiteEntry::text
};

struct CollectiveLog {
  alignas(kCacheLine) Counter version;  // set last; 0: the log is not ready
  Counter entry_bytes, entries, group_bytes, groups_held;
  Counter next;     // entries tried so far; added to by any thread
  Counter dropped;  // calls without an entry, because all were busy
  Counter groups_made;
  alignas(kCacheLine) CollectiveGroup groups[kCollectiveGroups];
  alignas(kCacheLine) CollectiveEntry log[kCollectives];
  CollectiveTotals totals[kCollectiveTotals];
  HostPlace host;  // of the main thread
  // How long each stream of the segment has run collectives.
  alignas(kCacheLine) RunningTime in_call[kMaxStreamBlocks];
};

// What is noted of a tensor.
struct TensorShape {
  const int64_t* sizes;
  size_t dimensions;
  uint8_t dtype;
  bool output;
  int peer;  // -1: none
};

// A call's entry and what its end is added to, for the threads that run the
// call. Where all entries were busy, there is none, and the call still counts.
class LoggedCollective {
 public:
  LoggedCollective() = default;
  LoggedCollective(CollectiveTotals* totals, uint64_t bytes, uint64_t now)
      : totals_(totals), bytes_(bytes), scheduled_(now) {}
  void take(CollectiveEntry& entry, uint64_t number) {
    entry_ = &entry;
    number_ = number;
  }
  // One thread at a time: the launcher, or before it has the task the caller.
  void started(uint64_t now);
  void ended(uint64_t now, uint64_t exposed_ns, uint64_t host_wait_ns);
  void failed(uint64_t now);
  // Where the moment is to be noted at which every rank had called; null where
  // nothing is noted. Valid until the call's end.
  Counter* all_here() { return entry_ ? &entry_->all_here_ns : nullptr; }

 private:
  void set(CollectiveEntry::State state);

  CollectiveEntry* entry_ = nullptr;
  uint64_t number_ = 0;
  CollectiveTotals* totals_ = nullptr;
  uint64_t bytes_ = 0, scheduled_ = 0, started_ = 0;
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
  uint64_t bytes = 0;  // that the rank gives, or else receives
  const TensorShape* tensors = nullptr;
  size_t count = 0;
};

// The log, made at the first call. Any thread.
CollectiveLog& collective_log();

// The group's number for CollectiveCall; -1 where there are too many.
int log_group(const char* name, const char* token, const char* ranks, int rank,
              int size);
void describe_group(int group, const char* description);

// Takes an entry for a call that is about to be queued. Any thread.
LoggedCollective log_collective(const CollectiveCall& call);

// The entry of the log for a group's calls of a name, made at the first call;
// null where there is no room. Any thread.
CollectiveTotals* totals_of(CollectiveLog& log, int group, const char* name);

// Notes where the host is now; `ooms` as in HostPlace. One thread at a time.
void note_place(HostPlace& place, const char* line, bool in_loader,
                uint64_t ooms, uint64_t now);

}  // namespace npu
