// Threads that serve all launchers of the process: helpers, and the one that
// keeps OpenMP's crowd.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "csrc/base/blocked_signals.h"

namespace npu {

// Starts one, which takes no signals. False: the system gives no thread.
inline bool start_service(void* (*run)(void*), void* context) {
  const BlockedSignals blocked;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, run, context) != 0) return false;
  pthread_detach(thread);
  return true;
}

// What such a thread does first. A launcher has started it, and may be urgent:
// the thread goes back to the priority that the program's first thread has.
inline void begin_service(const char* name) {
  pthread_setname_np(pthread_self(), name);
  setpriority(PRIO_PROCESS, id_t(gettid()),
              getpriority(PRIO_PROCESS, id_t(getpid())));
}

}  // namespace npu
