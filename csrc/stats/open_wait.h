// A host wait that others can see while it lasts.
#pragma once

#include "csrc/stats/layout.h"

namespace npu {

// Lists the calling thread's wait in the segment until end(). Where
// kMaxOpenWaits threads wait already, or for a thread's wait within a wait, it
// may find no place: then the wait is only counted.
class ListedWait {
 public:
  // `reason` as OpenWait::reason; `until` and `now` as OpenWait::until, since.
  ListedWait(uint64_t reason, uint32_t site, int device, int64_t stream,
             uint64_t until, uint64_t now);
  ~ListedWait() { end(); }
  ListedWait(const ListedWait&) = delete;
  // A second call does nothing.
  void end();

 private:
  OpenWait* place_;  // null: none, or ended
};

}  // namespace npu
