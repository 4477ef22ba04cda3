#include "csrc/taskqueue/in_flight.h"

#include <stdio.h>
#include <time.h>

#include "csrc/driver/registry.h"
#include "csrc/placement/spin_grant.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

// How often a wait for the device looks whether the stream was stopped: a
// device that does not answer wakes nobody.
constexpr uint64_t kLookNs = 20'000'000;
constexpr uint64_t kSpinTicks = 20'000;

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

int InFlight::finish(uint64_t& number, npu_failure& failure) {
  bool ended = ended_.spin(started_, SpinGrant(kSpinTicks).ticks());
  // Relaxed: failed_ only says here that the device starts nothing more. The
  // failure itself is read after ended_ has reached the same number.
  while (!ended && !failed_.load(std::memory_order_relaxed)) {
    ended = ended_.sleep(started_, kLookNs);
    if (ended || !stream_.failed()) continue;
    reset();
    number = started_;
    snprintf(failure.text, sizeof failure.text,
             "the stream was stopped while the device ran this");
    return NPU_ERROR;
  }
  number = failed_.load(std::memory_order_relaxed);
  if (!number) return NPU_OK;
  // Where failed_ was seen before ended_, the report is still being made.
  while (!ended_.reached(number)) ended_.spin(number, kSpinTicks);
  failure = failure_;
  reset();
  return failure.code;
}

bool InFlight::wait_for_room() {
  if (ended_.reached(started_)) {
    rest();
  } else if (const uint64_t next = ended_.value() + 1;
             !ended_.spin(next, SpinGrant(kSpinTicks).ticks())) {
    ended_.sleep(next, kLookNs);
  }
  // Relaxed: as in finish(), which the caller calls after false.
  return !failed_.load(std::memory_order_relaxed) && !stream_.failed();
}

int InFlight::run(const npu_kernel* kernel, const uint64_t* words,
                  npu_failure& failure) {
  int code;
  while ((code = start(kernel, words, failure)) == NPU_BUSY) rest();
  uint64_t number;
  return code == NPU_OK ? finish(number, failure) : code;
}

}  // namespace npu
