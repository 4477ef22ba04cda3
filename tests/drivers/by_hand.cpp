#include "tests/drivers/by_hand.h"

#include <stdio.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "csrc/driver/driver.h"
#include "csrc/driver/host/host_driver.h"

namespace npu::by_hand {
namespace {

constexpr std::chrono::seconds kLongest{100};

struct Queue {
  const npu_reports* reports;
};

struct Launch {
  Queue* queue;
  uint64_t number;
  const npu_kernel* kernel;
  const uint64_t* words;
};

std::mutex mutex;  // guards all below
std::condition_variable changed;
std::deque<Launch> launches;
size_t room = 1000, resets = 0, busy = 0;
bool queues_are_left = true;

Queue& of(npu_queue queue) { return *reinterpret_cast<Queue*>(queue); }

npu_queue queue_create(int, int, const npu_reports* reports) {
  std::lock_guard lock(mutex);
  if (!queues_are_left) return nullptr;
  return reinterpret_cast<npu_queue>(new Queue{reports});
}

void queue_destroy(npu_queue queue) { delete &of(queue); }

int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure*) {
  std::lock_guard lock(mutex);
  if (launches.size() >= room) {
    ++busy;
    changed.notify_all();
    return NPU_BUSY;
  }
  launches.push_back({&of(queue), number, kernel, words});
  changed.notify_all();
  return NPU_OK;
}

void queue_reset(npu_queue queue) {
  std::lock_guard lock(mutex);
  std::erase_if(launches,
                [&](const Launch& l) { return l.queue == &of(queue); });
  ++resets;
  changed.notify_all();
}

Launch take_oldest() {
  std::lock_guard lock(mutex);
  const Launch oldest = launches.front();
  launches.pop_front();
  return oldest;
}

// On a thread of the driver: the one that runs a queue's kernels is taken for
// that stream's.
void run_and_report(size_t tasks) {
  std::map<Queue*, uint64_t> done;
  for (; tasks; --tasks) {
    const Launch launch = take_oldest();
    const npu_reports& reports = *launch.queue->reports;
    reports.runs_here(reports.stream);
    npu_failure failure;
    launch.kernel->run(launch.kernel, launch.words, &failure);
    done[launch.queue] = launch.number;
  }
  for (const auto& [queue, number] : done)
    queue->reports->done(queue->reports->stream, number);
}

}  // namespace

void set_room(size_t tasks) {
  std::lock_guard lock(mutex);
  room = tasks;
}

size_t wait_until_busy(size_t times) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kLongest, [=] { return busy >= times; });
  return busy;
}

void set_queues(bool are_left) {
  std::lock_guard lock(mutex);
  queues_are_left = are_left;
}

size_t wait_until_started(size_t tasks) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kLongest, [=] { return launches.size() >= tasks; });
  return launches.size();
}

size_t in_flight() {
  std::lock_guard lock(mutex);
  return launches.size();
}

void end(size_t tasks) { std::thread(run_and_report, tasks).join(); }

void fail(const char* text) {
  npu_failure failure;
  failure.code = NPU_ERROR;
  snprintf(failure.text, sizeof failure.text, "%s", text);
  const Launch launch = take_oldest();
  const npu_reports& reports = *launch.queue->reports;
  reports.failed(reports.stream, launch.number, &failure);
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
