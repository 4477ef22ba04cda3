#include "csrc/taskqueue/device_queue.h"

#include <stdio.h>
#include <time.h>

#include <stdexcept>
#include <string>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_wait.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

npu_queue create(int device, int priority, const npu_reports* reports) {
  npu_queue queue = driver().queue_create(device, priority, reports);
  if (queue) return queue;
  throw std::runtime_error(
      "npu:" + std::to_string(device) + ": the driver '" + driver().name +
      "' has no further queue for a stream; use fewer streams");
}

// Has the type of npu_driver::launch, but its `queue` is the InFlight.
int run_in_flight(npu_queue queue, const npu_kernel* kernel,
                  const uint64_t* words, npu_failure* failure) {
  if (kernel->flags & NPU_KERNEL_ON_HOST)
    return kernel->run(kernel, words, failure);
  return reinterpret_cast<InFlight*>(queue)->run(kernel, words, *failure);
}

}  // namespace

InFlight::InFlight(Stream& stream)
    : stream_(stream),
      driver_(driver()),
      reports_{
          .stream = this,
          .done =
              [](void* self, uint64_t number) {
                static_cast<InFlight*>(self)->report(number);
              },
          .failed =
              [](void* self, uint64_t number, const npu_failure* failure) {
                auto& in_flight = *static_cast<InFlight*>(self);
                in_flight.failure_ = *failure;
                // A driver that leaves the code out has failed all the same.
                if (failure->code == NPU_OK)
                  in_flight.failure_.code = NPU_ERROR;
                in_flight.failed_.store(number, std::memory_order_relaxed);
                in_flight.report(number);
              },
          .runs_here =
              [](void* self) {
                launch_on_this_thread(static_cast<InFlight*>(self)->stream_);
              },
      } {}

// The release in advance_to() passes on what the driver's thread has seen of
// the task, and the failure, to whoever sees that the number has ended.
void InFlight::report(uint64_t number) {
  ended_.advance_to(number);
  stream_.wake_launcher();
}

int InFlight::start(const npu_kernel* kernel, const uint64_t* words,
                    npu_failure& failure) {
  const int code =
      driver_.submit(queue_, started_ + 1, kernel, words, &failure);
  if (code == NPU_OK) ++started_;
  return code;
}

const npu_failure* InFlight::failure_of(uint64_t number) const {
  return failed_.load(std::memory_order_relaxed) == number ? &failure_
                                                           : nullptr;
}

void InFlight::reset() {
  driver_.queue_reset(queue_);
  failed_.store(0, std::memory_order_relaxed);
  // queue_reset() has silenced the driver, so only this thread advances ended_.
  if (!ended_.reached(started_)) ended_.advance_to(started_);
}

void InFlight::rest() {
  const timespec moment{0, 50'000};
  nanosleep(&moment, nullptr);
}

bool InFlight::given_up() const {
  // Relaxed: failed_ only says here that the device starts nothing more. The
  // failure itself is read after ended_ has reached the same number.
  return failed_.load(std::memory_order_relaxed) || stream_.failed();
}

int InFlight::finish(uint64_t& number, npu_failure& failure) {
  const bool ended = wait_in_task(ended_, started_, kTaskSpinNs,
                                  [this] { return given_up(); });
  number = failed_.load(std::memory_order_relaxed);
  if (!number) {
    if (ended) return NPU_OK;
    reset();
    number = started_;
    snprintf(failure.text, sizeof failure.text,
             "the stream was stopped while the device ran this");
    return NPU_ERROR;
  }
  // Where failed_ was seen before ended_, the report is still being made.
  while (!ended_.reached(number)) pause();
  failure = failure_;
  reset();
  return failure.code;
}

bool InFlight::wait_for_room() {
  if (given_up()) return false;
  if (ended_.reached(started_)) {
    rest();
    return !given_up();
  }
  return wait_in_task(ended_, ended_.value() + 1, kTaskSpinNs,
                      [this] { return given_up(); });
}

int InFlight::start_when_there_is_room(const npu_kernel* kernel,
                                       const uint64_t* words, uint64_t& number,
                                       npu_failure& failure) {
  int code;
  do code = start(kernel, words, failure);
  while (code == NPU_BUSY && wait_for_room());
  if (code == NPU_OK) return NPU_OK;
  // A refusal counts only where everything before it has ended without failure.
  npu_failure of_another;
  of_another.text[0] = 0;
  if (const int earlier = finish(number, of_another)) {
    failure = of_another;
    return earlier;
  }
  number = started_ + 1;
  if (code != NPU_BUSY) return code;
  snprintf(failure.text, sizeof failure.text,
           "the stream was stopped before the device had room for this");
  return NPU_ERROR;
}

int InFlight::run(const npu_kernel* kernel, const uint64_t* words,
                  npu_failure& failure) {
  uint64_t number;
  const int code = start_when_there_is_room(kernel, words, number, failure);
  return code == NPU_OK ? finish(number, failure) : code;
}

DeviceQueue::DeviceQueue(Stream& stream) {
  if (driver().launch) {
    run_ = driver().launch;
    handle_ = create(stream.device(), stream.priority(), nullptr);
    return;
  }
  in_flight_ = std::make_unique<InFlight>(stream);
  in_flight_->opened(
      create(stream.device(), stream.priority(), &in_flight_->reports()));
  run_ = run_in_flight;
  handle_ = reinterpret_cast<npu_queue>(in_flight_.get());
}

DeviceQueue::~DeviceQueue() {
  driver().queue_destroy(in_flight_ ? in_flight_->queue() : handle_);
}

}  // namespace npu
