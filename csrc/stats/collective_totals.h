// What the collectives of this process have cost, by group and collective: a
// part of the log of collectives (collectives.h), whose version covers it, too.
#pragma once

#include "csrc/stats/layout.h"

namespace npu {

inline constexpr int kCollectiveTotals = 256;
inline constexpr int kPlaceWords = 19;

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

struct CallCost {
  uint64_t queued_ns, run_ns, waited_ns, exposed_ns, host_wait_ns;
};

// The entry for a group's calls of a name, made at the first call; null where
// there is no room. `totals` has kCollectiveTotals of them. Any thread.
CollectiveTotals* totals_of(CollectiveTotals* totals, int group,
                            const char* name);

// Adds a call. Any thread.
void add_call(CollectiveTotals& to, uint64_t bytes, const CallCost& cost);

// Notes where the host is now; `ooms` as in HostPlace. One thread at a time.
void note_place(HostPlace& place, const char* line, bool in_loader,
                uint64_t ooms, uint64_t now);

}  // namespace npu
