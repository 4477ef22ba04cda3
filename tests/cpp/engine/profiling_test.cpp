// What a profile has of tasks, and what it leaves out. Each test runs in a
// process of its own.
#include "csrc/engine/profiling.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

TEST_ALONE(Profile, HasPresentAndFutureStreamsFromItsBeginToItsEnd) {
  Stream& present = current_stream(0);
  submit(present, kNothing, {});
  start_profile();
  Stream& future = next_stream(0, StreamPool::kNormal);
  for (int i = 0; i < 3; ++i) submit(present, kNothing, {});
  submit(future, kNothing, {});
  synchronize_device(0, WaitReason::kDeviceSync);
  EXPECT_EQ(stop_profile().size(), 4);
  submit(present, kNothing, {});
  synchronize_device(0, WaitReason::kDeviceSync);
  EXPECT_EQ(stop_profile().size(), 0);

  // Neither the records nor the scopes of an earlier profile are part of the
  // next one.
  enter_scope(Scope::kOperator, 7);
  start_profile();
  submit(present, kNothing, {});
  synchronize_device(0, WaitReason::kDeviceSync);
  start_profile();
  submit(present, kNothing, {});
  enter_scope(Scope::kRange, 8);
  submit(present, kNothing, {});
  leave_scope(Scope::kRange);
  leave_scope(Scope::kRange);  // it was entered before the profile
  synchronize_device(0, WaitReason::kDeviceSync);
  { RunsOnCaller here(present, "test::here"); }
  const auto runs = stop_profile();
  EXPECT_EQ(runs.size(), 3);
  EXPECT_TRUE(runs[0].launch.op == 0 && runs[0].launch.range == 0);
  EXPECT_TRUE(runs[1].launch.op == 0 && runs[1].launch.range == 8);
  EXPECT_TRUE(runs[1].launch.thread == gettid());
  EXPECT_TRUE(runs[2].launch.thread == 0 && runs[2].launch.range == 0);
  EXPECT_EQ(std::string(runs[2].name), "test::here");
  EXPECT_TRUE(runs[2].started <= runs[2].ended);
  EXPECT_TRUE(runs[0].device == 0 && runs[0].stream == present.id());
}

TEST_ALONE(Profile, HasEachTaskOnceAndInItsThreadsScope) {
  constexpr uint64_t kThreads = 3, kEach = 5'000;
  Streams s;
  start_profile();
  s.one.look_for_observers();
  on_threads(kThreads, [&](uint64_t thread) {
    enter_scope(Scope::kRange, 100 + thread);
    for (uint64_t i = 0; i < kEach; ++i) {
      enter_scope(Scope::kOperator, 1 + thread);
      append(s.one, s.got, i);
      leave_scope(Scope::kOperator);
    }
    leave_scope(Scope::kRange);
  });
  drain(s.one);

  const auto runs = stop_profile();
  EXPECT_EQ(runs.size(), kThreads * kEach);
  Numbers of_thread(kThreads);
  uint64_t last = 0;
  for (uint64_t i = 0; i < runs.size(); ++i) {
    const ProfiledRun& run = runs[i];
    EXPECT_EQ(run.launch.position, i);
    EXPECT_EQ(run.launch.op + 99, run.launch.range);
    ++of_thread.at(run.launch.op - 1);
    EXPECT_TRUE(run.launch.begun <= run.started && last <= run.started &&
                run.started <= run.ended);
    last = run.ended;
  }
  EXPECT_EQ(of_thread, Numbers(kThreads, kEach));
  EXPECT_TRUE(stop_profile().empty());
}

TEST_ALONE(Profile, OrdersTheTimesOfATasksParts) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  start_profile();
  tell_observers(&Observer::submitted, stream, 0, Task{});
  // Before its launch, which has the time of now; and behind the part before.
  for (const TaskRun run :
       {TaskRun{0, "test::first", 1, 1, 2},
        TaskRun{0, "test::second", 1, UINT64_MAX - 5, UINT64_MAX - 7},
        TaskRun{0, "test::third", 1, UINT64_MAX - 9, UINT64_MAX - 8}})
    tell_observers(&Observer::ran, stream, run);

  const auto runs = stop_profile();
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
