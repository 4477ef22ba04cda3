// What a recorded program does on a stated device, against times found by hand.
#include "csrc/plan/simulation.h"
#include "tests/cpp/kernels.h"

namespace npu::plan {
namespace {

// Builds a program whose operations take as many ns as they have bytes.
struct Script {
  std::vector<PlanStream> streams{{0, 0, 0}, {0, 1, 0}, {1, 0, 0}};
  std::vector<Operation> operations;
  std::vector<Entry> entries;
  Setting setting = plain();

  static Setting plain() {
    Setting s;
    s.spec.bandwidth = 1;
    s.spec.fp32 = 1;
    s.spec.link = 1;
    s.spec.launch_ns = s.spec.kernel_ns = s.spec.complete_ns = 0;
    s.spec.copy_ns = 0;
    return s;
  }

  uint32_t work(double bytes, OperationType type = OperationType::kWork) {
    Operation& w = operations.emplace_back();
    w.type = type;
    w.work.bytes = bytes;
    return uint32_t(operations.size() - 1);
  }
  void add(Entry entry) { entries.push_back(entry); }
  void launch(uint64_t host_ns, uint32_t stream, uint32_t what) {
    add({Act::kLaunch, stream, 0, what, 0, 0, 0, host_ns});
  }
  void stream_wait(uint32_t stream, uint32_t other, uint64_t behind) {
    add({Act::kStreamWait, stream, other, 0, 0, 0, behind, 0});
  }
  void host_wait(uint64_t host_ns, uint32_t other, uint64_t behind) {
    add({Act::kHostWait, other, other, uint32_t(WaitReason::kItem), 7, 0,
         behind, host_ns});
  }
  void step(uint64_t host_ns = 0) {
    add({Act::kStep, 0, 0, 0, 0, 0, 0, host_ns});
  }

  Timeline run(int repeats = 1) const {
    Simulation simulation(streams, operations, setting);
    for (int i = 0; i < repeats; ++i)
      for (const Entry& entry : entries) simulation.feed(entry);
    return simulation.finish();
  }
};

Numbers ends(const Timeline& t) {
  Numbers all;
  for (const TaskTimes& task : t.tasks) all.push_back(task.ended);
  return all;
}

TEST(Simulation, AFastDeviceWaitsForLaunches) {
  Script s;
  const uint32_t w = s.work(10);
  s.setting.spec.launch_ns = 5;
  for (int i = 0; i < 3; ++i) s.launch(100, 0, w);
  s.step(50);
  const Timeline t = s.run();
  EXPECT_EQ(ends(t), Numbers({115, 215, 315}));
  EXPECT_TRUE(t.tasks[0].submitted == 100 && t.tasks[0].started == 105);
  EXPECT_EQ(t.tasks[2].depth, 1u);
  EXPECT_TRUE(t.steps[0].host == 350 && t.steps[0].device == 315);
}

TEST(Simulation, TheHostRunsAheadOfASlowOne) {
  Script s;
  const uint32_t w = s.work(1000);
  for (int i = 0; i < 3; ++i) s.launch(100, 0, w);
  s.step();
  const Timeline t = s.run();
  EXPECT_EQ(ends(t), Numbers({1100, 2100, 3100}));
  EXPECT_EQ(t.tasks[1].started, 1100u);
  EXPECT_EQ(t.tasks[2].depth, 3u);
  EXPECT_TRUE(t.steps[0].host == 300 && t.steps[0].device == 3100);
}

TEST(Simulation, AWaitTakesUntilTheDeviceIsDone) {
  Script s;
  const uint32_t w = s.work(1000);
  s.setting.spec.complete_ns = 30;
  s.launch(100, 0, w);
  s.launch(100, 0, w);
  s.host_wait(40, 0, 1);  // for the first of them
  s.host_wait(10, 0, 1);  // again, which takes no time
  s.launch(100, 0, w);
  const Timeline t = s.run();
  EXPECT_EQ(t.waits.size(), 2u);
  EXPECT_TRUE(t.waits[0].begun == 240 && t.waits[0].ended == 1130);
  EXPECT_EQ(t.waits[0].site, 7u);
  EXPECT_TRUE(t.waits[1].begun == 1140 && t.waits[1].ended == 1140);
  EXPECT_EQ(t.tasks[2].submitted, 1240u);
}

TEST(Simulation, AStreamStartsAfterWhatItWaitsFor) {
  Script s;
  const uint32_t slow = s.work(1000), quick = s.work(10);
  s.launch(100, 0, slow);
  s.launch(0, 0, slow);
  s.stream_wait(1, 0, 1);  // for the first
  s.launch(0, 1, quick);
  s.stream_wait(2, 1, 0);  // of another device
  s.launch(0, 2, quick);
  const Timeline t = s.run();
  const TaskTimes &wait = t.tasks[2], &after = t.tasks[3], &far = t.tasks[5];
  EXPECT_EQ(wait.ended, 1100u);
  EXPECT_TRUE(wait.after_stream == 0 && wait.after_number == 1);
  // It goes before the second of the first stream, which has had its turn.
  EXPECT_TRUE(after.started == 1100 && after.ended == 1110);
  EXPECT_EQ(t.tasks[1].ended, 2110u);
  EXPECT_TRUE(far.started == 1110 && far.ended == 1120);
}

TEST(Simulation, AFullQueueStopsTheHost) {
  Script s;
  const uint32_t w = s.work(1000);
  s.setting.capacity = 2;
  for (int i = 0; i < 4; ++i) s.launch(10, 0, w);
  const Timeline t = s.run();
  EXPECT_EQ(t.tasks[1].submitted, 20u);
  EXPECT_EQ(t.tasks[2].submitted, 1010u);
  EXPECT_EQ(t.tasks[3].submitted, 2010u);
  EXPECT_EQ(t.waits.size(), 2u);
  EXPECT_EQ(t.waits[0].reason, uint32_t(kFullQueue));
}

TEST(Simulation, AReplayIsItsPartsBehindOneLaunch) {
  Script s;
  const uint32_t a = s.work(100), b = s.work(50);
  const uint32_t replay = s.work(0, OperationType::kReplay);
  s.operations[replay].parts = {a, b, a};
  s.setting.spec.launch_ns = 10;
  s.launch(100, 0, replay);
  s.host_wait(0, 0, 0);
  const Timeline t = s.run();
  EXPECT_EQ(t.tasks[0].started, 110u);
  EXPECT_EQ(t.tasks[0].ended, 360u);
  EXPECT_EQ(t.waits[0].ended, 360u);
}

TEST(Simulation, ACollectiveRunsBesideWork) {
  Script s;
  const uint32_t w = s.work(1000);
  const uint32_t reduce = s.work(0, OperationType::kCollective);
  s.setting.stated = {-1, 700};
  s.launch(100, 0, w);
  s.launch(0, 1, reduce);
  s.launch(0, 0, w);
  s.stream_wait(0, 1, 0);
  s.launch(0, 0, w);
  const Timeline t = s.run();
  EXPECT_EQ(t.tasks[1].ended, 800u);
  EXPECT_EQ(t.tasks[4].started, 2100u);  // the wait was over before
}

TEST(Simulation, AMeasuredTimeGoesBeforeTheSpecs) {
  Script s;
  s.setting.spec.kernel_ns = 20;
  const uint32_t measured = s.work(1000), other = s.work(1000);
  s.setting.stated = {300};
  s.launch(100, 0, measured);
  s.launch(0, 0, other);
  EXPECT_EQ(ends(s.run()), Numbers({400, 1420}));
}

TEST(Simulation, SpeedsAreOfHostAndOfWork) {
  Script s;
  const uint32_t w = s.work(10);
  s.setting.host = 2;
  s.setting.work = 3;
  s.launch(100, 0, w);
  s.add({Act::kPass, 0, 0, 0, 0, 0, 500, 100});
  s.launch(100, 0, w);
  const Timeline t = s.run();
  EXPECT_EQ(t.tasks[0].submitted, 50u);
  EXPECT_EQ(t.tasks[0].ended, 80u);
  EXPECT_EQ(t.tasks[1].submitted, 650u);  // what passes is no host's work
}

TEST(Simulation, WhatTakesNoTimeEndsWithWhatIsBeforeIt) {
  Script s;
  const uint32_t w = s.work(1000), note = s.work(0, OperationType::kNone);
  s.launch(100, 0, w);
  s.launch(0, 0, note);
  s.launch(0, 1, note);
  EXPECT_EQ(ends(s.run()), Numbers({1100, 1100, 100}));
}

TEST(Simulation, StepsThatAreRepeatedWaitForThoseBefore) {
  Script s;
  const uint32_t w = s.work(1000);
  s.stream_wait(0, 1, 0);  // for the step before, of the first step for nothing
  s.launch(10, 0, w);
  s.stream_wait(1, 0, 0);
  s.launch(0, 1, w);
  s.step();
  const Timeline t = s.run(3);
  EXPECT_EQ(t.steps.size(), 3u);
  EXPECT_EQ(t.steps[2].device - t.steps[1].device, 2000u);
}

}  // namespace
}  // namespace npu::plan
