#include "tests/drivers/by_hand.h"

#include <stdio.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "csrc/driver/driver.h"
#include "csrc/driver/host/host_driver.h"

namespace npu::by_hand {
namespace {

constexpr std::chrono::seconds kLongest{30};

struct Launch {
  uint64_t number;
  const npu_kernel* kernel;
  const uint64_t* words;
};

struct Queue {
  const npu_reports* reports;
  std::deque<Launch> launches;
};

std::mutex mutex;  // guards all below
std::condition_variable changed;
size_t room = 1000, resets = 0;
Queue* last = nullptr;

Queue& of(npu_queue queue) { return *reinterpret_cast<Queue*>(queue); }

npu_queue queue_create(int, int, const npu_reports* reports) {
  return reinterpret_cast<npu_queue>(new Queue{reports, {}});
}

void queue_destroy(npu_queue queue) {
  std::lock_guard lock(mutex);
  if (last == &of(queue)) last = nullptr;
  delete &of(queue);
}

int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure*) {
  std::lock_guard lock(mutex);
  last = &of(queue);
  if (last->launches.size() >= room) return NPU_BUSY;
  last->launches.push_back({number, kernel, words});
  changed.notify_all();
  return NPU_OK;
}

void queue_reset(npu_queue queue) {
  std::lock_guard lock(mutex);
  of(queue).launches.clear();
  ++resets;
  changed.notify_all();
}

// On a thread of the driver: the one that runs a queue's kernels is taken for
// that stream's.
void run_and_report(size_t tasks) {
  const npu_reports* reports = nullptr;
  Launch launch{};
  for (; tasks; --tasks) {
    {
      std::lock_guard lock(mutex);
      reports = last->reports;
      launch = last->launches.front();
      last->launches.pop_front();
    }
    npu_failure failure;
    reports->runs_here(reports->stream);
    launch.kernel->run(launch.kernel, launch.words, &failure);
  }
  if (reports) reports->done(reports->stream, launch.number);
}

}  // namespace

void set_room(size_t tasks) {
  std::lock_guard lock(mutex);
  room = tasks;
}

size_t wait_until_started(size_t tasks) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kLongest,
                   [=] { return last && last->launches.size() >= tasks; });
  return last ? last->launches.size() : 0;
}

size_t in_flight() {
  std::lock_guard lock(mutex);
  return last ? last->launches.size() : 0;
}

void end(size_t tasks) { std::thread(run_and_report, tasks).join(); }

void fail(const char* text) {
  npu_failure failure;
  failure.code = NPU_ERROR;
  snprintf(failure.text, sizeof failure.text, "%s", text);
  const npu_reports* reports;
  uint64_t number;
  {
    std::lock_guard lock(mutex);
    reports = last->reports;
    number = last->launches.front().number;
    last->launches.pop_front();
  }
  reports->failed(reports->stream, number, &failure);
}

size_t wait_until_reset(size_t times) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kLongest, [=] { return resets >= times; });
  return resets;
}

}  // namespace npu::by_hand

extern "C" [[gnu::visibility("default")]] const npu_driver* NPU_DRIVER_ENTRY() {
  using namespace npu::by_hand;
  static npu_driver table = [] {
    npu_driver t = npu::host_driver();
    t.name = "by_hand";
    t.queue_create = queue_create;
    t.queue_destroy = queue_destroy;
    t.launch = nullptr;
    t.submit = submit;
    t.queue_reset = queue_reset;
    return t;
  }();
  return &table;
}
