// A driver for tests of the engine: each queue runs its kernels on a thread of
// its own, now and then late, has little room, and reports ends late and
// several at once from another thread. It also says that it has no room when it
// has. All that follows from NPU_TEST_SEED, as random inputs do.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "csrc/driver/driver.h"

namespace {

constexpr size_t kRoom = 48;
constexpr unsigned kLateEvery = 16, kFalseBusyEvery = 16;

unsigned seed() {
  static std::atomic<unsigned> queues{0};
  const char* given = getenv("NPU_TEST_SEED");
  return (given ? unsigned(strtoul(given, nullptr, 10)) : 0) + ++queues;
}

// Threads of a driver take no signals of the program's.
template <typename Body>
std::thread thread_of(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread started(body);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

class Queue {
 public:
  explicit Queue(const npu_reports& reports)
      : reports_(reports),
        random_(seed()),
        runner_(thread_of([this] { run(); })),
        reporter_(thread_of([this] { report(); })) {}

  ~Queue() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    runner_.join();
    reporter_.join();
  }

  int submit(uint64_t number, const npu_kernel* kernel, const uint64_t* words) {
    {
      std::lock_guard lock(mutex_);
      if (waiting_.size() >= kRoom || random_() % kFalseBusyEvery == 0)
        return NPU_BUSY;
      waiting_.push_back({number, kernel, words});
    }
    changed_.notify_all();
    return NPU_OK;
  }

  void reset() {
    std::unique_lock lock(mutex_);
    waiting_.clear();
    changed_.wait(lock, [this] { return !running_ && !reporting_; });
    done_ = reported_ = 0;
    failed_.reset();
  }

 private:
  struct Launch {
    uint64_t number;
    const npu_kernel* kernel;
    const uint64_t* words;
  };
  struct Failed {
    uint64_t number;
    npu_failure failure;
  };

  void sometimes_wait(unsigned most_us) {
    unsigned us = 0;
    {
      std::lock_guard lock(mutex_);
      if (random_() % kLateEvery == 0) us = random_() % most_us;
    }
    if (us) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  void run() {
    reports_.runs_here(reports_.stream);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(
          lock, [this] { return ends_ || (!waiting_.empty() && !failed_); });
      if (ends_) return;
      const Launch next = waiting_.front();
      waiting_.pop_front();
      running_ = true;
      lock.unlock();
      sometimes_wait(200);
      Failed failed{next.number, {}};
      const int code =
          next.kernel->run(next.kernel, next.words, &failed.failure);
      lock.lock();
      running_ = false;
      if (code != NPU_OK) {
        failed.failure.code = code;
        failed_ = failed;
      } else {
        done_ = next.number;
      }
      changed_.notify_all();
    }
  }

  void report() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        return ends_ || done_ > reported_ ||
               (failed_ && failed_->number > reported_);
      });
      if (ends_) return;
      reporting_ = true;
      lock.unlock();
      sometimes_wait(100);  // more may end meanwhile
      lock.lock();
      const uint64_t done = done_ > reported_ ? done_ : 0;
      const auto failed = failed_;
      reported_ = failed ? failed->number : done_;
      lock.unlock();
      if (done) reports_.done(reports_.stream, done);
      if (failed)
        reports_.failed(reports_.stream, failed->number, &failed->failure);
      lock.lock();
      reporting_ = false;
      changed_.notify_all();
    }
  }

  const npu_reports& reports_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::minstd_rand random_;
  std::deque<Launch> waiting_;
  bool running_ = false, reporting_ = false, ends_ = false;
  uint64_t done_ = 0, reported_ = 0;
  std::optional<Failed> failed_;
  std::thread runner_, reporter_;
};

Queue& of(npu_queue queue) { return *reinterpret_cast<Queue*>(queue); }

npu_queue queue_create(int, int, const npu_reports* reports) {
  return reinterpret_cast<npu_queue>(new Queue(*reports));
}
void queue_destroy(npu_queue queue) { delete &of(queue); }
int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure*) {
  return of(queue).submit(number, kernel, words);
}
void queue_reset(npu_queue queue) { of(queue).reset(); }

}  // namespace

extern "C" [[gnu::visibility("default")]] const npu_driver* NPU_DRIVER_ENTRY() {
  static npu_driver table = [] {
    npu_driver t = npu::host_driver();
    t.name = "delayed";
    t.queue_create = queue_create;
    t.queue_destroy = queue_destroy;
    t.launch = nullptr;
    t.submit = submit;
    t.queue_reset = queue_reset;
    return t;
  }();
  return &table;
}
