// What is measured between two CPUs; how far apart they are is not known here.
#include "csrc/base/core_distance.h"

#include <sched.h>

#include "tests/cpp/check.h"
#include "tests/cpp/placement/cpus.h"

namespace npu {
namespace {

TEST(CoreDistance, IsMeasuredBetweenTwoCpus) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  if (!CPU_ISSET(0, &before) || !CPU_ISSET(1, &before)) return;
  const cpu_set_t here = check::cpus({0});
  sched_setaffinity(0, sizeof here, &here);
  const double trip = line_round_trip(1);
  const double slowdown = slowdown_beside(1);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_TRUE(trip > 1);  // ns: no line comes and goes within one
  EXPECT_TRUE(slowdown > 0);
}

}  // namespace
}  // namespace npu
