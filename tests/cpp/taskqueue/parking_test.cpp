#include "csrc/taskqueue/parking.h"

#include <sched.h>

#include <thread>

#include "tests/cpp/check.h"

namespace npu {
namespace {

// Sleeps twice.
class Sleeper {
 public:
  Sleeper()
      : thread_([this] {
          for (int sleeps = 0; sleeps < 2; ++sleeps)
            parking_.park([] { return false; });
        }) {}
  ~Sleeper() { thread_.join(); }

  Parking& parking() { return parking_; }
  void wait_until_asleep() {
    while (!parking_.needs_wake()) sched_yield();
  }

 private:
  Parking parking_;
  std::thread thread_;
};

template <typename Work>
void on_cpu(int cpu, Work work) {
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    work();
  }).join();
}

// Else a device's thread that reports from the other core drives the launcher
// onto the one of its producer.
TEST(Parking, KeepsOffTheCpuOfItsProducerWhoeverElseWakesIt) {
  cpu_set_t all;
  EXPECT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  int second = first + 1;
  while (!CPU_ISSET(second, &all)) ++second;

  Sleeper sleeper;
  sleeper.wait_until_asleep();
  on_cpu(first, [&] { EXPECT_TRUE(sleeper.parking().wake()); });
  sleeper.wait_until_asleep();
  on_cpu(second, [&] { sleeper.parking().wake_if_parked(); });
  EXPECT_EQ(sleeper.parking().waker(), first);
}

}  // namespace
}  // namespace npu
