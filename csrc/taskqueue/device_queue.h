// The driver's queue of one stream, and how a kernel runs on it.
#pragma once

#include <memory>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/in_flight.h"

namespace npu {

class Stream;

class DeviceQueue {
 public:
  explicit DeviceQueue(Stream& stream);
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;

  // Runs the kernel in order with what was started before; the kernel is done
  // when this returns. One thread at a time.
  int run(const npu_kernel* kernel, const uint64_t* words,
          npu_failure& failure) const {
    return run_(handle_, kernel, words, &failure);
  }

  // Set for a driver that reports the end of its tasks; else null.
  InFlight* in_flight() const { return in_flight_.get(); }

 private:
  decltype(npu_driver::launch) run_;
  npu_queue handle_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace npu
