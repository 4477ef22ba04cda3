// A lock that costs its first thread no locked instruction, until a second
// thread comes (sole_user.h): what one thread allocates and frees at each
// launch is mostly its own.
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
    // Only who holds the lock reads it, and no sole user is left to be inside.
    is_shared_ = true;
  }
  void unlock() {
    if (is_shared_) [[unlikely]]
      shared_.unlock();
    else
      sole_.leave();
  }
  // The same in a forked child, by the thread that held it in the parent.
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
