// The queues of emulated devices: the thread that reports their ends, and one
// for each queue where kernels are computed.
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

namespace npu {

class EmulatedQueues {
 public:
  explicit EmulatedQueues(const EmulatedSpec& spec);
  EmulatedQueues(const EmulatedQueues&) = delete;

  struct Queue;

  Queue* create(int device, int priority, const npu_reports& reports);
  void destroy(Queue* queue);
  // `copies`: over the link, so many bytes. Else a kernel.
  int submit(Queue& queue, uint64_t number, const npu_kernel* kernel,
             const uint64_t* words, bool copies);
  void reset(Queue& queue);
  // Of a number that has been reported, and of the last kKept of them.
  bool times(Queue& queue, uint64_t number, uint64_t& start, uint64_t& end);

  // Operations of what was submitted since this was last asked.
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
  // The timer's; and for whoever waits until a queue is silent.
  std::condition_variable ends_, silent_;
  std::map<int, std::unique_ptr<DeviceModel>> devices_;
  std::vector<std::unique_ptr<Queue>> queues_;
  uint64_t wakes_at_ = UINT64_MAX;  // the timer; 0: it is awake
  uint64_t looked_ = 0;             // when the timer last did
  double flops_ = 0;
  bool started_ = false;
};

}  // namespace npu
