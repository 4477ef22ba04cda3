// What a task costs on its way through the queue, against the floors of the
// machine, all in one run.
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <memory>

#include "bench/cpp/harness.h"
#include "csrc/base/futex.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task.h"

namespace npu::bench {
namespace {

struct Message {
  uint64_t words[32];
};
Message source;  // stays in the first-level cache

// Messages of 256 bytes, which a consumer copies out.
class MessageRing {
 public:
  // `shared`: a second thread has pushed once.
  explicit MessageRing(bool shared = false) {
    if (!shared) return;
    Message m{};
    push(m);
    std::thread([&] { push(m); }).join();
    while (pop(m)) {
    }
  }
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
  static constexpr size_t kSlots = 8192;
  std::unique_ptr<Task[]> slots_{new Task[kSlots]()};
  std::atomic<uint64_t> shown_{0};
  Ring<Task> ring_{slots_.get(), kSlots, shown_};
};

double copy_256_bytes() {
  constexpr size_t kCount = 8192;  // 2 MB
  static Message* const buffer = [] {
    auto* b =
        static_cast<Message*>(aligned_alloc(4096, sizeof(Message) * kCount));
    memset(static_cast<void*>(b), 1, sizeof(Message) * kCount);
    return b;
  }();
  const uint64_t start = ticks();
  for (int lap = 0; lap < 20; ++lap)
    for (size_t i = 0; i < kCount; ++i) {
      memcpy(&buffer[i], &source, sizeof source);
      keep(&buffer[i]);
    }
  return elapsed_ns(start, ticks()) / (20 * kCount);
}

double one_rdtsc() {
  constexpr int kCount = 100'000;
  uint64_t sum = 0;
  const uint64_t start = ticks();
  for (int i = 0; i < kCount; ++i) sum += ticks();
  const double ns = elapsed_ns(start, ticks()) / kCount;
  keep(&sum);
  return ns;
}

// A wake-up of a thread that has slept for `us`, as the waker pays it.
double futex_wake_cost(int us) {
  constexpr int kCount = 100;
  struct alignas(kApart) Word {
    std::atomic<uint32_t> value{0};
    std::atomic<bool> asleep{false};
  } static word;
  word.value = 0;
  std::thread sleeper([] {
    pin(1);
    for (uint32_t i = 0; i < kCount; ++i) {
      word.asleep.store(true);
      while (word.value.load() == i) futex_wait(&word.value, i, 0);
    }
  });
  std::vector<double> costs;
  for (int i = 0; i < kCount; ++i) {
    while (!word.asleep.load()) pause();
    word.asleep.store(false);
    usleep(useconds_t(us));
    const uint64_t start = ticks();
    word.value.fetch_add(1);
    futex_wake_all(&word.value);
    costs.push_back(elapsed_ns(start, ticks()));
  }
  sleeper.join();
  return median(costs);
}

// What the consumer does while a burst is written.
enum class Consumer { kTakes, kIsInsideATask };

// Bursts into a ring that the consumer drains and that never fills. On an empty
// one the consumer pauses so often.
double push_cost(bool shared, Consumer does, int pauses) {
  constexpr uint64_t kBursts = 40, kBurst = 2048;
  MessageRing ring(shared);
  struct alignas(kApart) Progress {
    std::atomic<uint64_t> bursts{0};
  } written, taken;
  std::thread consumer([&ring, &written, &taken, does, pauses] {
    pin(1);
    Message m;
    for (uint64_t b = 1; b <= kBursts; ++b) {
      if (does == Consumer::kIsInsideATask)
        while (written.bursts.load(std::memory_order_acquire) < b) pause();
      for (uint64_t left = kBurst; left;) {
        if (ring.pop(m)) {
          keep(&m);
          --left;
          continue;
        }
        for (int i = 0; i < pauses; ++i) pause();
      }
      taken.bursts.store(b, std::memory_order_release);
    }
  });
  std::vector<double> costs;
  for (uint64_t b = 1; b <= kBursts; ++b) {
    const uint64_t start = ticks();
    for (uint64_t i = 0; i < kBurst; ++i)
      while (!ring.push(source)) pause();
    costs.push_back(elapsed_ns(start, ticks()) / kBurst);
    written.bursts.store(b, std::memory_order_release);
    while (taken.bursts.load(std::memory_order_acquire) < b) pause();
  }
  consumer.join();
  return median(costs);
}

// The median from the start of a push to the sight of it by a consumer that
// polls.
double one_way() {
  constexpr uint64_t kCount = 20'000;
  MessageRing ring;
  std::vector<double> delays(kCount);
  std::thread consumer([q = &ring, d = delays.data()] {
    pin(1);
    Message m;
    for (uint64_t i = 0; i < kCount;) {
      if (q->pop(m)) {
        d[i++] = elapsed_ns(m.words[31], ticks());
      } else {
        pause();
      }
    }
  });
  Message m = source;
  for (uint64_t i = 0; i < kCount; ++i) {
    for (const uint64_t start = ticks(); elapsed_ns(start, ticks()) < 1000;) {
    }
    m.words[31] = ticks();
    while (!ring.push(m)) pause();
  }
  consumer.join();
  return median(delays);
}

constexpr npu_kernel kNothing{nullptr, "bench::nothing", nullptr, 0};

void submit(Stream& stream) {
  Submission s;
  stream.begin(32, s, kSite);
  s.task->kernel = &kNothing;
  memcpy(s.words, &source, sizeof source);
  stream.commit(s);
}

std::unique_ptr<Stream> make_stream() {
  // The launcher inherits the affinity that its maker has.
  pin(1);
  auto stream = std::make_unique<Stream>(0, 0, 0, StreamMode::kQueued);
  submit(*stream);
  pin(0);
  return stream;
}

void drain(Stream& stream) {
  host_wait(stream, stream.tail(), WaitReason::kStreamSync);
}

double stream_push_cost(Stream& stream) {
  constexpr int kBursts = 100, kBurst = 2048;
  std::vector<double> costs;
  for (int b = 0; b < kBursts; ++b) {
    drain(stream);
    const uint64_t start = ticks();
    for (int i = 0; i < kBurst; ++i) submit(stream);
    costs.push_back(elapsed_ns(start, ticks()) / kBurst);
  }
  return median(costs);
}

// Holds the launcher while a backlog is written; then takes the time between
// two time stamps in its queue.
double launch_cost(Stream& stream, Stream& holder) {
  constexpr int kBacklog = 4000;
  std::vector<double> launches;
  for (int i = 0; i < 20; ++i) {
    Submission held;
    holder.begin(1, held);
    held.task->kernel = &kNothing;
    stream.wait_for(holder, holder.tail());
    Event first(Timing::kOn), last(Timing::kOn);
    first.record(stream);
    for (int k = 0; k < kBacklog; ++k) submit(stream);
    last.record(stream);
    holder.commit(held);
    usleep(2000);  // looking at the counter would disturb
    last.synchronize();
    launches.push_back(double(last.time_ns() - first.time_ns()) / kBacklog);
  }
  return median(launches);
}

double parked_push_cost(Stream& stream, int us) {
  std::vector<double> costs;
  for (int i = 0; i < 100; ++i) {
    const uint64_t parks = stream.block().parks.load();
    submit(stream);
    while (stream.block().parks.load() == parks) pause();
    usleep(useconds_t(us));
    const uint64_t start = ticks();
    submit(stream);
    costs.push_back(elapsed_ns(start, ticks()));
    drain(stream);
  }
  return median(costs);
}

double cpu_seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Share of a core that all threads but this one use.
double others_cpu_percent() {
  const auto others = [] {
    return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) -
           cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  };
  const double before = others(), start = cpu_seconds(CLOCK_MONOTONIC);
  usleep(200'000);
  return 100 * (others() - before) / (cpu_seconds(CLOCK_MONOTONIC) - start);
}

template <typename Body>
Measured repeat_some(Body body) {
  return repeat(repetitions(5, 3), body);
}

void bench_push(const Floor& copy, const std::string& name, bool shared) {
  const auto push = [&](const char* state, Consumer does, int pauses) {
    report(name + state, "ns",
           repeat_some([=] { return push_cost(shared, does, pauses); }), &copy);
  };
  push("_push", Consumer::kTakes, 64);
  push("_push_busy", Consumer::kIsInsideATask, 1);
  push("_push_polled", Consumer::kTakes, 1);
}

void run() {
  memset(&source, 7, sizeof source);
  pin(0);
  const Floor trip{report("line_round_trip", "ns",
                          repeat_some([] { return line_round_trip(1); })),
                   "line_round_trip"};
  const Floor copy{report("memcpy_256", "ns", repeat_some(copy_256_bytes)),
                   "memcpy_256"};
  report("rdtsc", "ns", repeat_some(one_rdtsc));
  const Floor wake{report("futex_wake", "ns",
                          repeat_some([] { return futex_wake_cost(200); })),
                   "futex_wake"};

  bench_push(copy, "ring", false);
  bench_push(copy, "ring_shared", true);
  report("ring_one_way_p50", "ns", repeat_some(one_way), &trip);

  auto stream = make_stream(), holder = make_stream();
  const auto chased = [&] { return stream_push_cost(*stream); };
  report("stream_submit_chased", "ns", repeat_some(chased), &copy);
  report("launcher_per_task", "ns",
         repeat_some([&] { return launch_cost(*stream, *holder); }));
  report("parked_submit", "ns",
         repeat_some([&] { return parked_push_cost(*stream, 200); }), &wake);
  report("idle_cpu", "%", repeat(repetitions(3, 3), others_cpu_percent));
  std::thread([&] { submit(*stream); }).join();
  report("stream_submit_chased_after_a_second_thread", "ns",
         repeat_some(chased), &copy);
}

}  // namespace
}  // namespace npu::bench

int main(int argc, char** argv) {
  setenv("NPU_DRIVER", "null", 1);
  npu::bench::begin(argc, argv, "ring_bench");
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    fputs("ring_bench needs two cores\n", stderr);
    return 1;
  }
  npu::bench::run();
}
