#include "csrc/taskqueue/task_notes.h"

#include <vector>

#include "csrc/observe/profile.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::kNothing;

// Another core's counter is behind: the launcher begins before the launch, ends
// before it began, and begins the next task before that.
TEST(TaskNotes, OrderTheTimesOfTwoThreads) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  stream.set_profiled(true);
  TaskNotes notes(stream);
  StreamProfile& profile = *stream.kept_profile();
  Task first{}, second{};
  first.kernel = second.kernel = &kNothing;
  first.stamp = 1'000;
  second.stamp = 1'001;
  profile.launched(0, first.stamp);
  profile.launched(1, second.stamp);

  notes.ends(first, notes.begins(first, 0, 990), 995);
  notes.ends(second, notes.begins(second, 1, 1'100), 1'090);
  second.stamp = 1'002;
  profile.launched(2, second.stamp);
  notes.ends(second, notes.begins(second, 2, 1'050), 1'060);

  std::vector<ProfiledRun> runs;
  profile.take(runs);
  const uint64_t times[][2] = {{1'000, 1'000}, {1'100, 1'100}, {1'100, 1'100}};
  EXPECT_EQ(runs.size(), 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(runs.at(i).started, times[i][0]);
    EXPECT_EQ(runs.at(i).ended, times[i][1]);
  }
}

TEST(Profile, OrdersTheTimesOfATasksParts) {
  StreamProfile profile(0, 0, 8);
  profile.launched(0, 0);
  profile.starts(0);
  // Before its launch, which has the time of now; and behind the part before.
  profile.part_ran("test::first", 1, 2);
  profile.part_ran("test::second", UINT64_MAX - 5, UINT64_MAX - 7);
  profile.part_ran("test::third", UINT64_MAX - 9, UINT64_MAX - 8);

  std::vector<ProfiledRun> runs;
  profile.take(runs);
  EXPECT_EQ(runs.size(), 3);
  EXPECT_EQ(runs.at(0).started, runs.at(0).launch.ended);
  EXPECT_EQ(runs.at(0).ended, runs.at(0).started);
  for (const uint64_t i : {1, 2}) {
    EXPECT_EQ(runs.at(i).started, UINT64_MAX - 5);
    EXPECT_EQ(runs.at(i).ended, UINT64_MAX - 5);
  }
}

}  // namespace
}  // namespace npu
