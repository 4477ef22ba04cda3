#include "tests/drivers/by_hand.h"

#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu::by_hand {
namespace {

constexpr std::chrono::seconds kLongest{100};
constexpr size_t kMostRoom = 1000;

struct Queue {
  const npu_reports* reports;
  size_t running = 0;   // kernels whose end has not been reported yet
  bool failed = false;  // nothing more of it runs before it is reset
};

struct Launch {
  Queue* queue;
  uint64_t number;
  const npu_kernel* kernel;
  const uint64_t* words;
};

std::mutex mutex;  // guards all below
// Never destroyed: a thread may end tasks while the process exits.
std::condition_variable& changed = *new std::condition_variable;
// Made as large as it gets, so that submit() allocates nothing, and never
// destroyed: threads outlive static destruction.
std::vector<Launch>& launches = []() -> std::vector<Launch>& {
  auto* const none = new std::vector<Launch>;
  none->reserve(kMostRoom);
  return *none;
}();
size_t room = kMostRoom, resets = 0, busy = 0;
bool queues_are_left = true;
int refusal = NPU_OK;

Queue& of(npu_queue queue) { return *reinterpret_cast<Queue*>(queue); }

npu_queue queue_create(int, int, const npu_reports* reports) {
  std::lock_guard lock(mutex);
  if (!queues_are_left) return nullptr;
  return reinterpret_cast<npu_queue>(new Queue{reports});
}

void queue_destroy(npu_queue queue) { delete &of(queue); }

int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure* failure) {
  std::lock_guard lock(mutex);
  if (refusal != NPU_OK) {
    snprintf(failure->text, sizeof failure->text, "refused");
    return refusal;
  }
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
  Queue& reset = of(queue);
  std::unique_lock lock(mutex);
  std::erase_if(launches, [&](const Launch& l) { return l.queue == &reset; });
  changed.wait(lock, [&] { return !reset.running; });
  reset.failed = false;
  ++resets;
  changed.notify_all();
}

// Of a queue that has not failed.
std::optional<Launch> take_oldest() {
  std::lock_guard lock(mutex);
  const auto at =
      std::find_if(launches.begin(), launches.end(),
                   [](const Launch& l) { return !l.queue->failed; });
  if (at == launches.end()) return {};
  const Launch oldest = *at;
  launches.erase(at);
  ++oldest.queue->running;
  return oldest;
}

void has_reported(Queue& queue) {
  std::lock_guard lock(mutex);
  queue.running = 0;
  changed.notify_all();
}

void report_failed(const Launch& launch, const npu_failure& failure) {
  {
    std::lock_guard lock(mutex);
    launch.queue->failed = true;
  }
  const npu_reports& reports = *launch.queue->reports;
  reports.failed(reports.stream, launch.number, &failure);
  has_reported(*launch.queue);
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

void set_refusal(int code) {
  std::lock_guard lock(mutex);
  refusal = code;
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

// The thread that runs a queue's kernels is taken for that stream's.
void end_here(size_t tasks) {
  std::map<Queue*, uint64_t> done;
  for (; tasks; --tasks) {
    const auto launch = take_oldest();
    if (!launch) break;
    const npu_reports& reports = *launch->queue->reports;
    reports.runs_here(reports.stream);
    npu_failure failure;
    failure.text[0] = 0;
    failure.code = launch->kernel->run(launch->kernel, launch->words, &failure);
    if (failure.code == NPU_OK) {
      done[launch->queue] = launch->number;
    } else {
      done.erase(launch->queue);
      report_failed(*launch, failure);
    }
  }
  for (const auto& [queue, number] : done) {
    queue->reports->done(queue->reports->stream, number);
    has_reported(*queue);
  }
}

void end(size_t tasks) { std::thread(end_here, tasks).join(); }

void fail(const char* text, int code) {
  npu_failure failure;
  failure.code = code;
  snprintf(failure.text, sizeof failure.text, "%s", text);
  report_failed(*take_oldest(), failure);
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
