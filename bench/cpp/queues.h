// The queues that are compared, behind one face: push a 256-byte message, pop
// one by copying it out.
#pragma once

#include <string.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/task.h"

#if __has_include(<boost/lockfree/queue.hpp>)
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#define NPU_BENCH_BOOST 1
#endif
#if __has_include(<concurrentqueue/moodycamel/concurrentqueue.h>)
#include <concurrentqueue/moodycamel/concurrentqueue.h>
#define NPU_BENCH_MOODYCAMEL 1
#elif __has_include(<concurrentqueue/concurrentqueue.h>)
#include <concurrentqueue/concurrentqueue.h>
#define NPU_BENCH_MOODYCAMEL 1
#endif

namespace npu::bench {

struct Message {
  uint64_t words[32];
};
inline constexpr size_t kSlots = 8192;

// As long as one thread alone has pushed.
class OurRing {
 public:
  static constexpr char kName[] = "ring";
  bool push(const Message& m) {
    const uint64_t p = ring_.claim();
    if (p == kRingFull) [[unlikely]]
      return false;
    Task& task = ring_.slot(p);
    task.marks = {};
    task.kernel = nullptr;
    task.stamp = 0;
    task.site = task.forward_site = 0;
    memcpy(task.inline_words, &m, sizeof m);
    ring_.publish(p);
    return true;
  }
  bool pop(Message& m) {
    const Task* task = ring_.front();
    if (!task) return false;
    memcpy(&m, task->inline_words, sizeof m);
    ring_.retire();
    return true;
  }

 private:
  std::unique_ptr<Task[]> slots_{new Task[kSlots]()};
  std::atomic<uint64_t> shown_{0};
  Ring<Task> ring_{slots_.get(), kSlots, shown_};
};

// The same after a second thread has pushed once.
class OurSharedRing : public OurRing {
 public:
  static constexpr char kName[] = "ring_shared";
  OurSharedRing() {
    Message m{};
    push(m);
    std::thread([&] { push(m); }).join();
    while (pop(m)) {
    }
  }
};

class MutexQueue {
 public:
  static constexpr char kName[] = "mutex_condvar_deque";
  bool push(const Message& m) {
    {
      std::lock_guard lock(mutex_);
      if (queue_.size() == kSlots) return false;
      queue_.push_back(m);
    }
    filled_.notify_one();
    return true;
  }
  bool pop(Message& m) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, std::chrono::milliseconds(1),
                          [this] { return !queue_.empty(); }))
      return false;
    m = queue_.front();
    queue_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Message> queue_;
};

#ifdef NPU_BENCH_BOOST
class BoostQueue {
 public:
  static constexpr char kName[] = "boost_lockfree_queue";
  bool push(const Message& m) { return queue_.bounded_push(m); }
  bool pop(Message& m) { return queue_.pop(m); }

 private:
  boost::lockfree::queue<Message> queue_{kSlots};
};

class BoostSpsc {
 public:
  static constexpr char kName[] = "boost_spsc_queue";
  bool push(const Message& m) { return queue_.push(m); }
  bool pop(Message& m) { return queue_.pop(m); }

 private:
  boost::lockfree::spsc_queue<Message> queue_{kSlots};
};
#endif

#ifdef NPU_BENCH_MOODYCAMEL
class Moodycamel {
 public:
  static constexpr char kName[] = "moodycamel_concurrentqueue";
  bool push(const Message& m) { return queue_.try_enqueue(m); }
  bool pop(Message& m) { return queue_.try_dequeue(m); }

 private:
  moodycamel::ConcurrentQueue<Message> queue_{2 * kSlots};
};
#endif

}  // namespace npu::bench
