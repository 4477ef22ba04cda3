// Signals belong to the program's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace npu {

// While one exists, the calling thread takes no signal; a thread that it starts
// meanwhile never does.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace npu
