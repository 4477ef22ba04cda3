// When callers need a core beside a stream's kernels, on a counted clock.
#include "csrc/placement/busy_caller.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct Caller {
  BusyCaller busy;
  uint64_t now = 7 * kMs, tail = 0;

  // Looks each millisecond, in which `tasks` more were submitted.
  bool goes_on(int ms, uint64_t tasks, bool waiting = false) {
    bool last = false;
    for (int i = 0; i < ms; ++i) {
      now += kMs;
      tail += tasks;
      last = busy.look(now, tail, waiting);
    }
    return last;
  }
};

TEST(BusyCaller, IsOneThatHasLaunchedForMilliseconds) {
  Caller caller;
  caller.goes_on(1, 0);
  EXPECT_TRUE(!caller.goes_on(3, 60));
  EXPECT_TRUE(caller.goes_on(1, 60));
  EXPECT_TRUE(caller.goes_on(50, 60));
}

TEST(BusyCaller, IsNoneThatLaunchesNowAndThen) {
  Caller caller;
  caller.goes_on(1, 0);
  EXPECT_TRUE(!caller.goes_on(50, 9));
  EXPECT_TRUE(caller.goes_on(5, 10));
  EXPECT_TRUE(!caller.goes_on(1, 9));
}

TEST(BusyCaller, IsNoneThatWaits) {
  Caller caller;
  EXPECT_TRUE(caller.goes_on(20, 60));
  EXPECT_TRUE(!caller.goes_on(1, 60, /*waiting=*/true));
  EXPECT_TRUE(!caller.goes_on(3, 60));
  EXPECT_TRUE(caller.goes_on(1, 60));
}

// Three milliseconds of launching, two of waiting, again and again.
TEST(BusyCaller, IsNoneThatWaitsAtEachStep) {
  Caller caller;
  caller.goes_on(1, 0);
  for (int step = 0; step < 20; ++step) {
    EXPECT_TRUE(!caller.goes_on(3, 60));
    EXPECT_TRUE(!caller.goes_on(2, 0, true));
  }
}

}  // namespace
}  // namespace npu
