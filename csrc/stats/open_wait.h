// A host wait that others can see while it lasts.
#pragma once

#include "csrc/stats/layout.h"

namespace npu {

// Lists the calling thread's wait in the segment until end(). Where all
// kMaxOpenWaits places are taken, the wait is not listed, only counted.
class ListedWait {
 public:
  // `reason`, `until` and `now` are OpenWait's `reason`, `until` and `since`.
  ListedWait(uint64_t reason, uint32_t site, int device, int64_t stream,
             uint64_t until, uint64_t now);
  ~ListedWait() { end(); }
  ListedWait(const ListedWait&) = delete;
  // A second call does nothing.
  void end();

 private:
  OpenWait* place_;  // null: no place, or ended
};

}  // namespace npu
