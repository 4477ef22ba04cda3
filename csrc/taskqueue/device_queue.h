// The driver's queue of one stream, how a kernel runs on it, and, for a driver
// whose tasks end after submit() has returned, what was started there and what
// the driver has reported of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

class Stream;

// One thread at a time starts, resets and asks for failures: the stream's
// launcher, or the holder of its inline mutex. Reports come from a thread of
// the driver's.
class InFlight {
 public:
  explicit InFlight(Stream& stream);

  const npu_reports& reports() const { return reports_; }
  void opened(npu_queue queue) { queue_ = queue; }
  npu_queue queue() const { return queue_; }

  // Like npu_driver::submit(). Where it returns NPU_OK, started() is the number
  // of the kernel.
  int start(const npu_kernel* kernel, const uint64_t* words,
            npu_failure& failure);
  uint64_t started() const { return started_; }

  // Whether the end of `number` has been reported.
  bool ended(uint64_t number) const { return ended_.reached(number); }
  // How the task of a number that has ended failed; null where it did not.
  const npu_failure* failure_of(uint64_t number) const;
  // When the task of a number that has ended began and ended, in ns of
  // CLOCK_MONOTONIC. False where the driver does not say it.
  bool times(uint64_t number, uint64_t& begun, uint64_t& ended) const {
    return driver_.task_times &&
           driver_.task_times(queue_, number, &begun, &ended);
  }
  // Gives up what has not ended. Afterwards every number counts as ended.
  void reset();

  // Waits until all that was started has ended. A failure resets the queue;
  // `number` is then the task that failed, or the last one where the stream was
  // stopped.
  int finish(uint64_t& number, npu_failure& failure);
  // Like start(), and waits while the device has no room for the kernel. Where
  // it returns another outcome than NPU_OK, nothing is in flight any more, and
  // `number` is the task that failed: one that was started before, or the next
  // one, which was not started.
  int start_when_there_is_room(const npu_kernel* kernel, const uint64_t* words,
                               uint64_t& number, npu_failure& failure);
  // Starts the kernel and waits for its end. Nothing may be in flight before.
  int run(const npu_kernel* kernel, const uint64_t* words,
          npu_failure& failure);

  // What the launcher notes of a task that it has started.
  struct Flight {
    uint64_t number;   // its end is the end of this task
    uint64_t started;  // ticks
  };
  // One for each slot of the stream's queue. Made before there is a launcher,
  // whose thread could tell nobody that there is no memory.
  std::vector<Flight> flights;

  // Sleeps a moment before a full device is asked again for room for the only
  // task of a queue: no report of that queue says when there is room.
  static void rest();

 private:
  void report(uint64_t number);
  // Whether the device starts nothing more, or the stream was stopped.
  bool given_up() const;
  // After NPU_BUSY: waits until the oldest task in flight has ended, or a
  // moment where there is none. False: given up.
  bool wait_for_room();

  Stream& stream_;
  const npu_driver& driver_;
  const npu_reports reports_;
  npu_queue queue_ = nullptr;
  uint64_t started_ = 0;
  Sequence ended_;
  // The number of the task that failed; 0: none. Relaxed: it is written before
  // ended_ reaches that number, whose release and acquire order both it and the
  // failure.
  std::atomic<uint64_t> failed_{0};
  npu_failure failure_;
};

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
