// The emulated devices: their memory, their queues, and the driver's table.
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/blocked_signals.h"
#include "csrc/base/clock.h"
#include "csrc/driver/driver.h"
#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/driver/emulated/work.h"

namespace npu {
namespace {

// The memory of the devices: ranges of addresses, of which only the pages that
// somebody writes take memory, so that a device may have more than this
// machine.
class Memory {
 public:
  // Null where the device has not so much left.
  void* allocate(int device, size_t bytes) {
    std::lock_guard lock(mutex_);
    double& taken = taken_[device];
    if (!emulated_spec().overcommit &&
        taken + double(bytes) > emulated_spec().memory)
      return nullptr;
    void* segment = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (segment == MAP_FAILED) return nullptr;
    taken += double(bytes);
    segments_[reinterpret_cast<uint64_t>(segment)] = {bytes, bytes};
    return segment;
  }

  // Takes over a segment that another process made, which counts it.
  void adopt(void* segment, size_t bytes) {
    std::lock_guard lock(mutex_);
    segments_[reinterpret_cast<uint64_t>(segment)] = {bytes, 0};
  }

  void free(int device, void* segment, size_t bytes) {
    std::lock_guard lock(mutex_);
    munmap(segment, bytes);
    const auto at = segments_.find(reinterpret_cast<uint64_t>(segment));
    taken_[device] -= double(at->second.taken);
    segments_.erase(at);
  }

  bool has(uint64_t address) {
    std::lock_guard lock(mutex_);
    auto at = segments_.upper_bound(address);
    if (at == segments_.begin()) return false;
    --at;
    return address - at->first < at->second.bytes;
  }

 private:
  struct Segment {
    size_t bytes;
    size_t taken;  // of the device's memory
  };

  std::mutex mutex_;
  std::map<uint64_t, Segment> segments_;  // by address
  std::map<int, double> taken_;           // by device
};

// The least time between two looks of the timer, which would otherwise keep a
// core busy for kernels of a few microseconds.
constexpr uint64_t kPaceNs = 25'000;
// A queue that has more to come is reported on no more often than this.
constexpr uint64_t kProgressNs = 100'000;

struct Queue {
  DeviceModel& device;
  DeviceModel::Queue& times;
  const npu_reports& reports;
  std::vector<DeviceModel::Span> kept;  // times that were reported, by number
  int in_flight = 0;                    // tasks
  bool reporting = false;  // a thread is in a function of `reports`
};

// The queues of all devices, and the thread that reports the ends of their
// tasks.
class Queues {
 public:
  Queue* create(int device, int priority, const npu_reports& reports) {
    std::lock_guard lock(mutex_);
    auto& model =
        devices_.try_emplace(device, spec_.concurrency, spec_.copy_engines)
            .first->second;
    if (!started_) {
      // A driver's threads take no signals that are meant for the program.
      const BlockedSignals blocked;
      std::thread([this] { report_ends(); }).detach();  // ends with the process
      started_ = true;
    }
    // One more than there is room for: a task that has been reported makes room
    // for another one before its times are asked for.
    std::vector<DeviceModel::Span> kept(size_t(spec_.queue_room) + 1);
    std::unique_ptr<Queue> queue(
        new Queue{model, *model.add(priority), reports, std::move(kept)});
    return queues_.emplace_back(std::move(queue)).get();
  }

  void destroy(Queue& queue) {
    reset(queue);
    std::lock_guard lock(mutex_);
    queue.device.remove(&queue.times);
    std::erase_if(queues_, [&](const auto& q) { return q.get() == &queue; });
  }

  int submit(Queue& queue, uint64_t number, const TaskWork& work) {
    const TaskCost cost = cost_of(spec_, work);
    const uint64_t now = now_ns();
    std::lock_guard lock(mutex_);
    if (queue.in_flight >= spec_.queue_room) return NPU_BUSY;
    ++queue.in_flight;
    queue.device.submit(queue.times,
                        {number, cost.engine, now + uint64_t(spec_.launch_ns),
                         cost.overhead, cost.work});
    queue.device.advance(now);
    if (due(queue) < wakes_at_) ends_.notify_one();
    return NPU_OK;
  }

  void reset(Queue& queue) {
    std::unique_lock lock(mutex_);
    queue.in_flight = 0;
    queue.device.reset(queue.times, now_ns());
    silent_.wait(lock, [&] { return !queue.reporting; });
  }

  // The times of a number that has been reported. False where it has not been,
  // or where more later ones have been than the queue has room for.
  bool times(Queue& queue, uint64_t number, uint64_t& start, uint64_t& end) {
    std::lock_guard lock(mutex_);
    const DeviceModel::Span& span = queue.kept[number % queue.kept.size()];
    if (!number || span.number != number) return false;
    start = span.start;
    end = span.end;
    return true;
  }

 private:
  void report_ends() {
    pthread_setname_np(pthread_self(), "npu_emulated");
    prctl(PR_SET_TIMERSLACK, 1);
    std::unique_lock lock(mutex_);
    for (;;) {
      wakes_at_ = 0;
      looked_ = now_ns();
      for (auto& [_, device] : devices_) device.advance(looked_);
      // Queues may come and go while something is reported, so the loop begins
      // again then. It ends, because nothing is reported twice.
      bool told = true;
      while (told) {
        told = false;
        for (size_t i = 0; i < queues_.size() && !told; ++i)
          told = report(*queues_[i], lock);
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

  // True where it has reported something; the lock was released meanwhile.
  bool report(Queue& queue, std::unique_lock<std::mutex>& lock) {
    uint64_t done = 0;
    auto& begun = queue.times.begun;
    while (!begun.empty() &&
           begun.front().end + uint64_t(spec_.complete_ns) <= looked_) {
      done = begun.front().number;
      queue.kept[done % queue.kept.size()] = begun.front();
      begun.pop_front();
      --queue.in_flight;
    }
    if (!done) return false;
    queue.reporting = true;
    lock.unlock();
    queue.reports.done(queue.reports.stream, done);
    lock.lock();
    queue.reporting = false;
    silent_.notify_all();
    return true;
  }

  // When the timer is to look at the queue again; UINT64_MAX: never.
  uint64_t due(const Queue& queue) const {
    if (!queue.in_flight) return UINT64_MAX;
    const auto after = uint64_t(spec_.complete_ns);
    const uint64_t first = queue.device.next_end(queue.times) + after;
    const uint64_t last = queue.times.expected_end() + after;
    return std::max(std::min(last, std::max(first, looked_ + kProgressNs)),
                    looked_ + kPaceNs);
  }

  const EmulatedSpec& spec_ = emulated_spec();
  std::mutex mutex_;
  // ends_ wakes the timer; silent_ wakes whoever waits until a queue is silent.
  std::condition_variable ends_, silent_;
  std::map<int, DeviceModel> devices_;
  std::vector<std::unique_ptr<Queue>> queues_;
  uint64_t wakes_at_ = UINT64_MAX;  // when the timer wakes; 0: it is awake
  uint64_t looked_ = 0;             // when the timer last looked
  bool started_ = false;
};

// Never destroyed: the queues' thread, which uses it, ends with the process.
Memory& memory() {
  static auto* const instance = new Memory;
  return *instance;
}
// A forked child has none of the threads, so it begins with new queues.
Queues& queues() {
  static Queues* instance = [] {
    pthread_atfork(nullptr, nullptr, [] { instance = new Queues; });
    return new Queues;
  }();
  return *instance;
}

Queue& of(npu_queue queue) { return *reinterpret_cast<Queue*>(queue); }

uint64_t memory_total(int) { return uint64_t(emulated_spec().memory); }

void* segment_alloc(int device, size_t bytes) {
  return memory().allocate(device, bytes);
}
void segment_free(int device, void* segment, size_t bytes) {
  memory().free(device, segment, bytes);
}
void* segment_open(int device, int handle, size_t bytes) {
  void* const segment = host_driver().segment_open(device, handle, bytes);
  if (segment) memory().adopt(segment, bytes);
  return segment;
}

// Null where there is no memory or no thread for it.
npu_queue queue_create(int device, int priority,
                       const npu_reports* reports) try {
  return reinterpret_cast<npu_queue>(
      queues().create(device, priority, *reports));
} catch (const std::exception&) {
  return nullptr;
}
void queue_destroy(npu_queue queue) { queues().destroy(of(queue)); }
void queue_reset(npu_queue queue) { queues().reset(of(queue)); }

// Sets every element of a view to zero, and nothing between them.
void zero(char* at, const npu_view& view, uint32_t dim) {
  if (dim == view.ndim) {
    memset(at, 0, view.itemsize);
    return;
  }
  const int64_t step = view.strides[dim] * view.itemsize;
  if (dim + 1 == view.ndim && view.strides[dim] == 1) {
    memset(at, 0, size_t(view.sizes[dim] * step));
    return;
  }
  for (int64_t i = 0; i < view.sizes[dim]; ++i)
    zero(at + i * step, view, dim + 1);
}

void zero(const npu_view& view, const uint64_t* words) {
  char* const at = reinterpret_cast<char*>(words[view.word]);
  if (is_range(view)) {
    memset(at, 0, words[view.ndim] * view.itemsize);
  } else {
    zero(at, view, 0);
  }
}

// Whether the task crosses the link: it copies between the device's memory and
// the host's. With `zeros`, sets what it writes to the host's memory to zero.
bool crosses_link(const npu_kernel& kernel, const uint64_t* words, bool zeros) {
  const bool copy =
      !strcmp(kernel.name, "memcpy") || !strcmp(kernel.name, "aten::copy_");
  bool link = copy && kernel.n_views == 1;  // the task brings its data
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    const npu_view& view = kernel.views[i];
    const bool written = view.access & NPU_WRITE;
    if ((!written && !copy) || memory().has(words[view.word])) continue;
    link = link || copy;
    if (zeros && written && words[view.word]) zero(view, words);
  }
  return link;
}

TaskWork work_of(const npu_kernel& kernel, const uint64_t* words, bool link) {
  TaskWork work = work_of_task(kernel, words);
  if (!link) return work;
  work.kind = WorkKind::kCopy;
  // The bytes count twice, as read and as written, but cross the link once.
  if (kernel.n_views > 1) work.bytes /= 2;
  return work;
}

// Nothing is computed, so zeros are written to the host's memory: the program
// must find values that it can go on with, and not what the memory held by
// chance. They are written here, earlier than the device would do it; a
// program that reads them before it has waited races with the copy anyway.
int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure*) {
  const bool link = crosses_link(*kernel, words, true);
  return queues().submit(of(queue), number, work_of(*kernel, words, link));
}

int task_times(npu_queue queue, uint64_t number, uint64_t* begun,
               uint64_t* ended) {
  return queues().times(of(queue), number, *begun, *ended);
}

}  // namespace

const npu_driver& emulated_driver() {
  static const npu_driver table = [] {
    npu_driver t = host_driver();
    t.name = "emulated";
    t.memory_total = memory_total;
    t.segment_alloc = segment_alloc;
    t.segment_free = segment_free;
    t.queue_create = queue_create;
    t.queue_destroy = queue_destroy;
    t.launch = nullptr;
    t.submit = submit;
    t.queue_reset = queue_reset;
    t.segment_open = segment_open;
    t.task_times = task_times;
    return t;
  }();
  return table;
}

TaskWork emulated_work(const npu_kernel& kernel, const uint64_t* words) {
  return work_of(kernel, words, crosses_link(kernel, words, false));
}

}  // namespace npu
