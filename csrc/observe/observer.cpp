#include "csrc/observe/observer.h"

#include <atomic>

namespace npu {
namespace {

std::atomic<Observer*> observer_{nullptr};

}  // namespace

// Acquire and release: whoever sees the pointer sees the object behind it.
Observer* observer() { return observer_.load(std::memory_order_acquire); }

void set_observer(Observer* observer) {
  observer_.store(observer, std::memory_order_release);
}

}  // namespace npu
