// A lock that costs its first thread no locked instruction until a second
// thread uses it (sole_user.h). Most programs launch, and so allocate and free,
// on one thread.
#pragma once

#include "csrc/taskqueue/sleep_lock.h"
#include "csrc/taskqueue/sole_user.h"
#include "csrc/taskqueue/system.h"

namespace npu {

template <typename System, int kSpins = 64>
class BasicSoleLock {
 public:
  void lock() {
    if (sole_.enter()) [[likely]]
      return;
    shared_.lock();
    // Only the holder of the lock reads it, and no sole user is inside any
    // more.
    is_shared_ = true;
  }
  void unlock() {
    if (is_shared_) [[unlikely]]
      shared_.unlock();
    else
      sole_.leave();
  }
  // Like unlock(), in a forked child, by the thread that held it in the parent.
  void unlock_in_child() {
    if (is_shared_)
      shared_.unlock();
    else
      sole_.end_in_child();
  }

 private:
  SoleUser<System> sole_;
  BasicSleepLock<System, kSpins> shared_;
  bool is_shared_ = false;
};

using SoleLock = BasicSoleLock<System>;

}  // namespace npu
