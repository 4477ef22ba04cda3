// Which repetitions count (bench/cpp/harness.h), and what is measured between
// two CPUs.
#include "bench/cpp/harness.h"
#include "tests/cpp/system.h"

namespace npu::bench {
namespace {

// Looked at once before the first repetition and once after each.
int looks;

// Near before and after the first repetition only.
bool near_twice() { return ++looks <= 2; }
bool always() { return true; }
bool never() { return false; }

Measured counting(int n, bool (*are_near)()) {
  looks = 0;
  return repeat(n, [value = 0.0]() mutable { return ++value; }, are_near);
}

TEST(Repeat, KeepsWhatIsNearAndCountsTheRestWhereNothingIs) {
  const struct {
    int n;
    bool (*are_near)();
    int kept, left_out, median;
  } cases[] = {
      {3, always, 3, 0, 2}, {3, near_twice, 1, 17, 1}, {2, never, 0, 12, 6}};
  for (const auto& c : cases) {
    const Measured found = counting(c.n, c.are_near);
    EXPECT_EQ(found.kept.size(), c.kept);
    EXPECT_EQ(found.left_out.size(), c.left_out);
    EXPECT_EQ(median(found.counted()), c.median);
  }
}

// How far apart the two are is not known here.
TEST(CoreDistance, IsMeasuredBetweenTwoCpus) {
  const cpu_set_t before = allowed_cpus();
  if (!CPU_ISSET(0, &before) || !CPU_ISSET(1, &before)) return;
  const cpu_set_t here = cpus({0});
  sched_setaffinity(0, sizeof here, &here);
  const double trip = line_round_trip(1);
  const double slowdown = slowdown_beside(1);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_TRUE(trip > 1);  // ns: no line comes and goes within one
  EXPECT_TRUE(slowdown > 0);
}

}  // namespace
}  // namespace npu::bench
