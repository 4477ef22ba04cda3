#include "csrc/driver/emulated/queues.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/blocked_signals.h"
#include "csrc/base/clock.h"
#include "csrc/driver/emulated/cost.h"

namespace npu {
namespace {

constexpr size_t kKept = 4096;
// The least time between two looks of the timer, which would otherwise keep a
// core busy for kernels of a few microseconds.
constexpr uint64_t kPaceNs = 25'000;
// A queue that has more to come is reported on no more often than this.
constexpr uint64_t kProgressNs = 100'000;

// A driver's threads take no signals that are meant for the program.
template <typename Body>
std::thread start(Body body) {
  const BlockedSignals blocked;
  return std::thread(body);
}

}  // namespace

struct EmulatedQueues::Computation {
  uint64_t number;
  const npu_kernel* kernel;
  const uint64_t* words;
};

struct EmulatedQueues::Queue {
  Queue(DeviceModel& device, int priority, const npu_reports& reports)
      : device(device), times(*device.add(priority)), reports(reports) {}

  DeviceModel& device;
  DeviceModel::Queue& times;
  const npu_reports& reports;
  std::deque<uint64_t> in_flight;  // numbers, the oldest first
  // Where kernels are computed, each queue has a thread for them, because a
  // kernel may wait for one of another queue.
  std::thread computer;
  std::condition_variable computes;
  std::deque<Computation> to_compute;
  bool computing = false, closes = false;
  uint64_t computed = 0;  // the number of the last kernel computed
  uint64_t failed = 0;    // the number of the kernel that failed, or 0
  bool told_failure = false;
  npu_failure failure{};
  bool reporting = false;  // a thread is in a function of `reports`
  std::vector<DeviceModel::Span> kept =
      std::vector<DeviceModel::Span>(kKept);  // by number
};

EmulatedQueues::EmulatedQueues(const EmulatedSpec& spec) : spec_(spec) {}

EmulatedQueues::Queue* EmulatedQueues::create(int device, int priority,
                                              const npu_reports& reports) {
  std::lock_guard lock(mutex_);
  auto& model = devices_[device];
  if (!model)
    model =
        std::make_unique<DeviceModel>(spec_.concurrency, spec_.copy_engines);
  if (!started_) {
    start([this] { report_ends(); }).detach();  // ends with the process
    started_ = true;
  }
  auto queue = std::make_unique<Queue>(*model, priority, reports);
  if (spec_.computes)
    queue->computer = start([this, &queue = *queue] { compute(queue); });
  queues_.push_back(std::move(queue));
  return queues_.back().get();
}

void EmulatedQueues::destroy(Queue* queue) {
  reset(*queue);
  if (spec_.computes) {
    {
      std::lock_guard lock(mutex_);
      queue->closes = true;
      queue->computes.notify_one();
    }
    queue->computer.join();
  }
  std::lock_guard lock(mutex_);
  queue->device.remove(&queue->times);
  std::erase_if(queues_, [&](const auto& q) { return q.get() == queue; });
}

int EmulatedQueues::submit(Queue& queue, uint64_t number,
                           const npu_kernel* kernel, const uint64_t* words,
                           const TaskWork& work) {
  const TaskCost cost = cost_of(spec_, work);
  const uint64_t now = now_ns();
  const DeviceModel::Task task{number, cost.engine,
                               now + uint64_t(spec_.launch_ns), cost.overhead,
                               cost.work};

  std::lock_guard lock(mutex_);
  if (queue.in_flight.size() >= size_t(spec_.queue_room)) return NPU_BUSY;
  queue.in_flight.push_back(number);
  queue.device.submit(queue.times, task);
  queue.device.advance(now);
  flops_ += work.flops;
  if (spec_.computes) {
    queue.to_compute.push_back({number, kernel, words});
    queue.computes.notify_one();
  }
  if (due(queue) < wakes_at_) ends_.notify_one();
  return NPU_OK;
}

uint64_t EmulatedQueues::due(const Queue& queue) const {
  if (queue.in_flight.empty() || queue.told_failure) return UINT64_MAX;
  // The end of a task that is late because it is still being computed wakes the
  // timer without this.
  if (spec_.computes && queue.computed < queue.in_flight.front() &&
      !queue.failed)
    return UINT64_MAX;
  const auto after = uint64_t(spec_.complete_ns);
  const uint64_t first = queue.device.next_end(queue.times) + after;
  const uint64_t last = queue.times.expected_end() + after;
  return std::max(std::min(last, std::max(first, looked_ + kProgressNs)),
                  looked_ + kPaceNs);
}

// True where it has reported something; the lock was released meanwhile.
bool EmulatedQueues::report(Queue& queue, uint64_t now,
                            std::unique_lock<std::mutex>& lock) {
  if (queue.told_failure) return false;
  uint64_t done = 0;
  bool fails = false;
  auto& begun = queue.times.begun;
  while (!begun.empty() &&
         begun.front().end + uint64_t(spec_.complete_ns) <= now) {
    DeviceModel::Span span = begun.front();
    fails = span.number == queue.failed;
    if (spec_.computes && !fails && span.number > queue.computed) break;
    DeviceModel::Span& kept = queue.kept[span.number % kKept];
    // A task does not end before it has been computed; `kept` has that time.
    if (kept.number == span.number) span.end = std::max(span.end, kept.end);
    kept = span;
    begun.pop_front();
    queue.in_flight.pop_front();
    if (fails) break;
    done = span.number;
  }
  if (!done && !fails) return false;
  queue.told_failure = fails;
  queue.reporting = true;
  const npu_reports& reports = queue.reports;
  const uint64_t failed = queue.failed;
  lock.unlock();
  if (done) reports.done(reports.stream, done);
  if (fails) reports.failed(reports.stream, failed, &queue.failure);
  lock.lock();
  queue.reporting = false;
  silent_.notify_all();
  return true;
}

void EmulatedQueues::report_ends() {
  pthread_setname_np(pthread_self(), "npu_emulated");
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock lock(mutex_);
  for (;;) {
    wakes_at_ = 0;
    looked_ = now_ns();
    for (auto& [_, device] : devices_) device->advance(looked_);
    // Queues may come and go while something is reported, so the loop begins
    // again then. It ends, because nothing is reported twice.
    bool told = true;
    while (told) {
      told = false;
      for (size_t i = 0; i < queues_.size() && !told; ++i)
        told = report(*queues_[i], looked_, lock);
    }
    wakes_at_ = UINT64_MAX;
    for (const auto& queue : queues_)
      wakes_at_ = std::min(wakes_at_, due(*queue));
    if (wakes_at_ == UINT64_MAX) {
      ends_.wait(lock);
    } else {
      ends_.wait_until(lock, std::chrono::steady_clock::time_point(
                                 std::chrono::nanoseconds(wakes_at_)));
    }
  }
}

void EmulatedQueues::compute(Queue& queue) {
  pthread_setname_np(pthread_self(), "npu_compute");
  queue.reports.runs_here(queue.reports.stream);
  npu_failure failure;
  std::unique_lock lock(mutex_);
  for (;;) {
    queue.computes.wait(
        lock, [&] { return queue.closes || !queue.to_compute.empty(); });
    if (queue.closes) return;
    const Computation next = queue.to_compute.front();
    queue.to_compute.pop_front();
    if (queue.failed) continue;
    queue.computing = true;
    lock.unlock();
    failure.text[0] = 0;
    const int code = next.kernel->run(next.kernel, next.words, &failure);
    lock.lock();
    queue.computing = false;
    if (code == NPU_OK) {
      queue.computed = next.number;
      queue.kept[next.number % kKept] = {next.number, 0, now_ns()};
    } else {
      queue.failure = failure;
      queue.failure.code = code;
      queue.failed = next.number;
    }
    silent_.notify_all();
    if (due(queue) < wakes_at_) ends_.notify_one();
  }
}

void EmulatedQueues::reset(Queue& queue) {
  std::unique_lock lock(mutex_);
  queue.to_compute.clear();
  queue.in_flight.clear();
  queue.device.reset(queue.times, now_ns());
  silent_.wait(lock, [&] { return !queue.reporting && !queue.computing; });
  queue.computed = queue.failed = 0;
  queue.told_failure = false;
}

bool EmulatedQueues::times(Queue& queue, uint64_t number, uint64_t& start,
                           uint64_t& end) {
  std::lock_guard lock(mutex_);
  const DeviceModel::Span& span = queue.kept[number % kKept];
  if (!number || span.number != number) return false;
  start = span.start;
  end = span.end;
  return true;
}

double EmulatedQueues::take_flops() {
  std::lock_guard lock(mutex_);
  return std::exchange(flops_, 0);
}

}  // namespace npu
