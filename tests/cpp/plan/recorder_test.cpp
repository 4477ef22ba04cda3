// What is written down of launches, waits and memory.
#include <time.h>

#include "csrc/plan/recorder.h"
#include "tests/cpp/kernels.h"

namespace npu::plan {
namespace {

// Never destroyed, as the product's are not: launchers may be inside a call.
// `host`: how many times this machine's speed.
Recorder& made(double host = 1) {
  static auto& all = *new std::vector<Recorder*>;
  return *all.emplace_back(new Recorder({{}, host, 1, Stream::kCapacity, {}}));
}

struct Recorded {
  Recorder& recorder = made();
  Recorded() { install_observer(recorder, true); }
  Recording end() {
    install_observer(recorder, false);
    return recorder.take();
  }
};

Stream& stream(int64_t id) {
  return *find_stream(0, int64_t(StreamPool::kNormal) * kStreamsPerPool + id);
}

TEST(Recorder, NotesLaunchesAndHowFarBehindWaitsAre) {
  Stream &a = stream(0), &b = stream(1);
  EXPECT_TRUE(works(a));  // before the recording: it does not count
  Recorded r;
  submit(a, kNothing, {});
  submit(a, kNothing, {});
  b.wait_for(a, a.tail() - 1);
  submit(b, kNothing, {});
  host_wait(a, a.tail(), WaitReason::kItem);
  r.recorder.step();
  const Recording p = r.end();
  std::vector<Act> acts;
  for (const Entry& entry : p.entries) acts.push_back(entry.act);
  using enum Act;
  EXPECT_EQ(acts, std::vector<Act>({kLaunch, kLaunch, kStreamWait, kLaunch,
                                    kHostWait, kStep}));
  EXPECT_EQ(p.streams.size(), 2u);
  EXPECT_EQ(p.operations[p.entries[0].what].name, "test::nothing");
  EXPECT_EQ(p.entries[0].what, p.entries[1].what);
  EXPECT_TRUE(p.entries[2].stream == 1 && p.entries[2].other == 0);
  EXPECT_EQ(p.entries[2].amount, 1u);
  EXPECT_EQ(p.entries[4].what, uint32_t(WaitReason::kItem));
  EXPECT_EQ(p.entries[4].amount, 0u);
}

constexpr uint64_t kMs = 1'000'000;

void work_for(uint64_t ns) {
  timespec t;
  const auto now = [&] {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return uint64_t(t.tv_sec) * 1000 * kMs + uint64_t(t.tv_nsec);
  };
  for (const auto end = now() + ns; now() < end;) {
  }
}

TEST(Recorder, CountsTheThreadsOwnTimeAndNotItsWaits) {
  Stream& a = stream(2);
  Recorded r;
  submit(a, kNothing, {});
  work_for(100 * kMs);
  Gate gate;
  submit(a, kGate, {word(&gate)});
  std::thread opens([&] {
    gate.wait_until_entered();
    work_for(100 * kMs);  // not this thread's, which waits meanwhile
    gate.open();
  });
  drain(a);
  opens.join();
  submit(a, kNothing, {});
  r.recorder.pass(123);
  const Recording p = r.end();
  EXPECT_EQ(p.entries.size(), 5u);
  EXPECT_TRUE(p.entries[1].host_ns >= 99 * kMs);
  EXPECT_TRUE(p.entries[2].host_ns < 50 * kMs);
  EXPECT_TRUE(p.entries[3].host_ns < 50 * kMs);
  EXPECT_TRUE(p.entries[4].act == Act::kPass);
  EXPECT_EQ(p.entries[4].amount, 123u);
}

TEST(Recorder, AQueryThatFindsItDoneIsAWait) {
  Stream& a = stream(3);
  Recorded r;
  submit(a, kNothing, {});
  while (!host_poll(a, a.tail())) {
  }
  const Recording p = r.end();
  EXPECT_EQ(p.entries.size(), 2u);
  EXPECT_TRUE(p.entries[1].act == Act::kHostWait);
  EXPECT_EQ(p.entries[1].what, uint32_t(WaitReason::kEventSync));
}

TEST(Recorder, AWaitForRoomIsOverWithTheNextLaunch) {
  Stream& a = stream(6);
  Recorded r;
  submit(a, kNothing, {});
  r.recorder.host_waits(a, a.tail(), kFullQueue);
  submit(a, kNothing, {});
  work_for(kMs);
  while (!host_poll(a, a.tail())) {
  }
  const Recording p = r.end();
  const Entry& poll = p.entries.back();
  EXPECT_TRUE(poll.act == Act::kHostWait);
  EXPECT_EQ(poll.what, uint32_t(WaitReason::kEventSync));
  EXPECT_TRUE(poll.host_ns >= kMs * 99 / 100 && poll.host_ns < 1000 * kMs);
}

TEST(Recorder, TheNextTaskIsTheCollective) {
  Stream& a = stream(4);
  Recorded r;
  r.recorder.collective("all_reduce", 4096, {0, 1, 2, 3});
  submit(a, kNothing, {});
  submit(a, kNothing, {});
  drain(a);
  const Recording p = r.end();
  const Operation& w = p.operations[p.entries[0].what];
  EXPECT_TRUE(w.type == OperationType::kCollective);
  EXPECT_EQ(w.kind, "all_reduce");
  EXPECT_EQ(w.work.bytes, 4096);
  EXPECT_EQ(w.ranks.size(), 4u);
  EXPECT_TRUE(p.operations[p.entries[1].what].type == OperationType::kWork);
}

TEST(Recorder, ARecordingKnowsNothingOfTheOneBefore) {
  Stream& a = stream(7);
  {
    Recorded before;
    before.recorder.collective("all_reduce", 4096, {0, 1});
    before.end();
  }
  Recorded r;
  submit(a, kNothing, {});
  drain(a);
  const Recording p = r.end();
  EXPECT_EQ(p.operations.size(), 1u);
  EXPECT_EQ(p.operations[p.entries[0].what].name, "test::nothing");
  EXPECT_EQ(p.entries[0].thread, 0u);
}

TEST(Recorder, MemoryGrowsAtLines) {
  Recorder& r = made();
  Stream& a = stream(5);
  r.allocated(a, nullptr, 100);
  r.allocated(a, nullptr, 50);
  r.freed(a, nullptr, 100, FreedTo::kStream);
  r.allocated(a, nullptr, 80);
  r.allocated(a, nullptr, 200);
  r.freed(a, nullptr, 1 << 20, FreedTo::kStream);  // more than there was
  r.allocated(a, nullptr, 10);
  const Recording p = r.take();
  EXPECT_EQ(p.peaks.back().bytes, 330u);
  EXPECT_EQ(p.peaks.size(), 1u);  // all of one line
}

TEST(Recorder, ItsClockRunsForwardAtEachSpeedOfTheHost) {
  Stream& a = stream(8);
  for (const double host : {0.25, 1.0, 4.0}) {
    Recorder& r = made(host);
    install_observer(r, true);
    const uint64_t begun = r.now();
    uint64_t before = begun;
    for (int i = 0; i < 50; ++i) {
      work_for(kMs);
      const uint64_t worked = r.now();
      EXPECT_TRUE(worked >= before);
      submit(a, kNothing, {});
      before = r.now();
      EXPECT_TRUE(before >= worked);
    }
    install_observer(r, false);
    // Its own work takes a host of four times the speed a quarter of the time.
    EXPECT_TRUE(before - begun >= uint64_t(49.0 * double(kMs) / host));
    if (host > 1) EXPECT_TRUE(before - begun < 40 * kMs);
    r.take();
  }
}

TEST(Recorder, ItsClockRunsForwardFromThreadToThread) {
  Recorder& r = made(1);
  work_for(10 * kMs);  // which the other thread's own clock knows nothing of
  const uint64_t here = r.now();
  uint64_t there = 0, later = 0;
  std::thread([&] {
    there = r.now();
    work_for(40 * kMs);
    later = r.now();  // although it has launched nothing
  }).join();
  EXPECT_TRUE(there >= here && later > here && r.now() >= later);
}

}  // namespace
}  // namespace npu::plan
