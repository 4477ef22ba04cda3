// What it costs that two cores share a chain of element-wise kernels: each as
// long as a kernel that a step has many of, half a megabyte in and out.
//
// Where each core always has the same half, its cache has what it needs next.
// Where one kernel runs in halves and the next one does not, half of what it
// reads, and the memory that it writes, have to come from the other core.
#include <atomic>
#include <thread>
#include <vector>

#include "bench/cpp/harness.h"

namespace {

using namespace npu::bench;

constexpr size_t kElements = size_t{128} << 10;
using Numbers = std::vector<float>;

// One operation for each element: some 40 microseconds, as a gelu with vectors
// takes for as many.
[[gnu::noinline]] void kernel(Numbers& to, const Numbers& from, size_t begin,
                              size_t end) {
  for (size_t i = begin; i < end; ++i) to[i] = from[i] * 0.75f + 0.125f;
}

// A thread on the other core that runs the second half of a kernel.
class Other {
 public:
  Other() : thread_([this] { run(); }) {}
  ~Other() {
    post(kEnd);
    thread_.join();
  }
  void begin(Numbers& to, const Numbers& from) {
    to_ = &to, from_ = &from;
    post(kWork);
  }
  // Acquire: what the other half wrote.
  void wait() const {
    while (word_.load(std::memory_order_acquire) != kIdle) npu::pause();
  }

 private:
  enum : int { kIdle, kWork, kEnd };
  // Release: the pointers.
  void post(int what) { word_.store(what, std::memory_order_release); }
  void run() {
    pin(1);
    for (;;) {
      const int word = word_.load(std::memory_order_acquire);
      if (word == kEnd) return;
      if (word == kIdle) {
        npu::pause();
        continue;
      }
      kernel(*to_, *from_, kElements / 2, kElements);
      post(kIdle);
    }
  }

  Numbers* to_ = nullptr;
  const Numbers* from_ = nullptr;
  std::atomic<int> word_{kIdle};
  std::thread thread_;
};

void evaluate(Other& other, bool in_halves, Numbers& to, const Numbers& from) {
  if (in_halves) other.begin(to, from);
  kernel(to, from, 0, in_halves ? kElements / 2 : kElements);
  if (in_halves) other.wait();
}

// Nanoseconds of the second of two kernels that take turns.
Measured second(Other& other, bool first_in_halves, bool second_in_halves) {
  Numbers a(kElements, 1), b(kElements, 1);
  return repeat(repetitions(400, 100), [&] {
    evaluate(other, first_in_halves, b, a);
    const uint64_t begun = npu::ticks();
    evaluate(other, second_in_halves, a, b);
    return elapsed_ns(begun, npu::ticks());
  });
}

}  // namespace

int main(int argc, char** argv) {
  begin(argc, argv, "halves_bench");
  pin(0);
  Other other;
  const Floor alone{report("alone", "ns", second(other, false, false)),
                    "alone"};
  report("in_halves", "ns", second(other, true, true), &alone);
  report("alone_after_halves", "ns", second(other, true, false), &alone);
  report("in_halves_after_alone", "ns", second(other, false, true), &alone);
}
