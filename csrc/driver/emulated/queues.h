// The queues of emulated devices, the thread that reports the ends of their
// tasks, and, where kernels are computed, one thread for each queue.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/driver/emulated/work.h"

namespace npu {

class EmulatedQueues {
 public:
  explicit EmulatedQueues(const EmulatedSpec& spec);
  EmulatedQueues(const EmulatedQueues&) = delete;

  struct Queue;

  Queue* create(int device, int priority, const npu_reports& reports);
  void destroy(Queue* queue);
  int submit(Queue& queue, uint64_t number, const npu_kernel* kernel,
             const uint64_t* words, const TaskWork& work);
  void reset(Queue& queue);
  // The times of a number that has been reported. False where it has not been,
  // or where it is not among the last kKept numbers.
  bool times(Queue& queue, uint64_t number, uint64_t& start, uint64_t& end);

  // Floating-point operations of what was submitted since the last call.
  double take_flops();

 private:
  struct Computation;

  void report_ends();
  void compute(Queue& queue);
  bool report(Queue& queue, uint64_t now, std::unique_lock<std::mutex>& lock);
  // When the timer is to look at the queue again; UINT64_MAX: never.
  uint64_t due(const Queue& queue) const;

  const EmulatedSpec spec_;
  std::mutex mutex_;
  // ends_ wakes the timer; silent_ wakes whoever waits until a queue is silent.
  std::condition_variable ends_, silent_;
  std::map<int, std::unique_ptr<DeviceModel>> devices_;
  std::vector<std::unique_ptr<Queue>> queues_;
  uint64_t wakes_at_ = UINT64_MAX;  // when the timer wakes; 0: it is awake
  uint64_t looked_ = 0;             // when the timer last looked
  double flops_ = 0;
  bool started_ = false;
};

}  // namespace npu
