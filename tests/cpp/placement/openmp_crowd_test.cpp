// When OpenMP's teams are made and ended, with a libgomp that counts its calls.
#include "csrc/placement/openmp_crowd.h"
#include "tests/cpp/kernels.h"

namespace {

std::atomic<int> teams_{0}, ends_{0};

}  // namespace

extern "C" {
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
int omp_pause_resource_all(int);

void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned) { ++teams_; }
int omp_pause_resource_all(int) {
  ++ends_;
  return 0;
}
}

namespace npu {
namespace {

TEST_ALONE(OpenmpCrowd, StaysForAsLongAsWasAskedFor) {
  note_openmp_team();
  const uint64_t now = now_ns(), end = now + 30'000'000;
  ask_for_openmp_crowd(now, end - 20'000'000);
  EXPECT_TRUE(cores_are_wanted(now));
  while (!teams_) usleep(100);
  ask_for_openmp_crowd(now, end);  // again
  while (!ends_) usleep(100);
  EXPECT_TRUE(now_ns() >= end);
  EXPECT_EQ(teams_.load(), 1);
  // The next one.
  note_openmp_team();
  ask_for_openmp_crowd(now_ns(), now_ns() + 20'000'000);
  while (ends_ < 2) usleep(100);
  EXPECT_EQ(teams_.load(), 2);
}

// A crowd takes a core while it gathers, and shortens nobody's spinning then.
TEST_ALONE(OpenmpCrowd, IsNotMadeWhereNoKernelHasATeam) {
  const uint64_t now = now_ns(), end = now + 20'000'000;
  ask_for_openmp_crowd(now, end);
  EXPECT_TRUE(!openmp_team_was_used());
  usleep(30'000);
  EXPECT_EQ(teams_.load() + ends_.load(), 0);
}

TEST_ALONE(OpenmpTeam, IsEndedTenTimesASecond) {
  const uint64_t begun = now_ns();
  while (ends_ < 3) {
    dismiss_openmp_team();
    usleep(1000);
  }
  EXPECT_TRUE(now_ns() - begun >= 200'000'000);
}

TEST_ALONE(OpenmpTeam, IsLeftAloneWherePlacementIsOff) {
  setenv("NPU_DISPATCH_PLACEMENT", "off", 1);
  dismiss_openmp_team();
  EXPECT_EQ(ends_.load(), 0);
}

}  // namespace
}  // namespace npu
