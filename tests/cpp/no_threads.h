// Makes the start of a thread fail.
#pragma once

#include <pthread.h>

namespace npu::check {

// While one exists, new threads ask for a stack that is larger than the address
// space. (A limit of threads would not hold for root.)
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace npu::check
