// What a stream has started on a driver whose tasks end later than submit()
// returns, and what the driver has reported of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

class Stream;

// One thread at a time starts, resets and asks for failures: the stream's
// launcher, or who holds its inline mutex. Reports come from the driver's.
class InFlight {
 public:
  explicit InFlight(Stream& stream);

  const npu_reports& reports() const { return reports_; }
  void opened(npu_queue queue) { queue_ = queue; }
  npu_queue queue() const { return queue_; }

  // As npu_driver::submit(). Where it returns NPU_OK, started() is its number.
  int start(const npu_kernel* kernel, const uint64_t* words,
            npu_failure& failure);
  uint64_t started() const { return started_; }

  // Whether the end of `number` has been reported.
  bool ended(uint64_t number) const { return ended_.reached(number); }
  // Of a number that has ended: how it failed, or null.
  const npu_failure* failure_of(uint64_t number) const;
  // When a number that has ended did so, where the driver says it: ns of
  // CLOCK_MONOTONIC.
  bool times(uint64_t number, uint64_t& begun, uint64_t& ended) const {
    return driver_.task_times &&
           driver_.task_times(queue_, number, &begun, &ended);
  }
  // Gives up what has not ended. Everything has ended then.
  void reset();

  // Waits until all that was started has ended. A failure resets the queue;
  // `number` is that which failed, or where the stream was stopped the last.
  int finish(uint64_t& number, npu_failure& failure);
  // After NPU_BUSY: waits until the next of those in flight has ended, or a
  // moment where there is none. False: one of them has failed, or the stream.
  bool wait_for_room();
  // Starts, and waits for the end. Nothing was in flight.
  int run(const npu_kernel* kernel, const uint64_t* words,
          npu_failure& failure);

  // Sleeps a moment, before a device is asked again that had no room for the
  // only task of a queue: no report of that queue tells when it has.
  static void rest();

 private:
  void report(uint64_t number);

  Stream& stream_;
  const npu_driver& driver_;
  const npu_reports reports_;
  npu_queue queue_ = nullptr;
  uint64_t started_ = 0;
  Sequence ended_;
  // The one that failed; 0: none. Relaxed: written before ended_ reaches it,
  // whose release and acquire order it and the failure.
  std::atomic<uint64_t> failed_{0};
  npu_failure failure_;
};

}  // namespace npu
