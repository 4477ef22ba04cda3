// What the flight recorder keeps of calls, and what they have cost.
#include "csrc/distributed/core/collectives.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

LoggedCollective call(int group, uint64_t seq) {
  static const int64_t sizes[2] = {2, 3};
  static const TensorShape shape{sizes, 2, 6, true, -1};
  return log_collective(
      {group, seq, false, "all_reduce", 7, 1000, 60, -1, 0, 5, 24, &shape, 1});
}

const CollectiveEntry* find(int group, uint64_t seq) {
  for (const CollectiveEntry& entry : collective_log().log)
    if (entry.state.load() % CollectiveEntry::kStates &&
        entry.group.load() == uint64_t(group) && entry.seq.load() == seq)
      return &entry;
  return nullptr;
}

TEST(Collectives, AnEntryFollowsItsCall) {
  const int group = log_group("one", "", "0-1", 1, 2);
  LoggedCollective entry = call(group, 3);
  const CollectiveEntry* found = find(group, 3);
  EXPECT_EQ(found != nullptr, true);
  if (!found) return;
  const auto state = [&] {
    return int(found->state.load() % CollectiveEntry::kStates);
  };
  EXPECT_EQ(state(), int(CollectiveEntry::kScheduled));
  entry.started(2000);
  EXPECT_EQ(state(), int(CollectiveEntry::kStarted));
  EXPECT_EQ(found->started_ns.load(), 2000);
  entry.ended(3000, 0, 0);
  EXPECT_EQ(state(), int(CollectiveEntry::kCompleted));
  EXPECT_EQ(found->ended_ns.load(), 3000);
  for (const int i : {1, 2, 3})
    EXPECT_EQ(found->shapes[i].load(), i < 3 ? i + 1 : 0);
}

TEST(Collectives, OneThatHasNotEndedIsNeverOverwritten) {
  const int group = log_group("two", "", "0", 0, 1);
  LoggedCollective open = call(group, 1);
  for (uint64_t i = 0; i < 3 * kCollectives; ++i)
    call(group, 10 + i).ended(1, 0, 0);
  const CollectiveEntry* found = find(group, 1);
  EXPECT_EQ(found != nullptr, true);
  open.ended(5, 0, 0);
  EXPECT_EQ(found && found->ended_ns.load() == 5, true);
}

TEST(Collectives, MoreThanThereIsRoomForAreCountedAndHarmNone) {
  const int group = log_group("three", "", "0", 0, 1);
  const uint64_t before = collective_log().dropped.load();
  std::vector<LoggedCollective> open;
  for (int i = 0; i < kCollectives + 5; ++i) open.push_back(call(group, 7));
  EXPECT_EQ(collective_log().dropped.load() - before, 5);
  for (LoggedCollective& entry : open) entry.ended(1, 0, 0);
}

TEST(Collectives, ThreadsNeverShareAnEntry) {
  const int group = log_group("four", "", "0", 0, 1);
  on_threads(2, [&](uint64_t thread) {
    const uint64_t from = 1'000'000 * (1 + thread);
    for (uint64_t i = from; i < from + 5000; ++i) {
      LoggedCollective entry = call(group, i);
      entry.started(i);
      const CollectiveEntry* mine = find(group, i);
      EXPECT_TRUE(mine && mine->started_ns.load() == i);
      entry.ended(i, 0, 0);
      if (i % 100) i += 50;
    }
  });
}

const CollectiveTotals* totals(int group, const char* name) {
  return totals_of(collective_log(), group, name);
}

TEST(Collectives, AnEndedCallIsAddedToItsGroupAndName) {
  const int group = log_group("five", "", "0-1", 1, 2);
  LoggedCollective entry = call(group, 0);  // at 1000
  entry.started(2000);
  entry.all_here()->store(2400);
  entry.ended(3000, 700, 200);
  call(group, 1).failed(1);
  const CollectiveTotals& found = *totals(group, "all_reduce");
  EXPECT_EQ(found.run_ns.count.load(), 1);
  EXPECT_EQ(found.run_ns.sum.load(), 1000);
  EXPECT_EQ(found.queued_ns.load(), 1000);
  EXPECT_EQ(found.waited_ns.load(), 400);
  EXPECT_EQ(found.exposed_ns.load(), 700);
  EXPECT_EQ(found.host_wait_ns.load(), 200);
  EXPECT_EQ(found.bytes.load(), 24);
  EXPECT_EQ(found.failed.load(), 1);
  EXPECT_EQ(totals(group, "all_reduce") == &found, true);
  EXPECT_EQ(totals(group, "broadcast") == &found, false);
}

TEST(Collectives, AHostPlaceIsAsOldAsItsLine) {
  HostPlace& host = collective_log().host;
  note_place(host, "a.py:1 in f", false, 0, 100);
  note_place(host, "a.py:1 in f", true, 2, 200);
  EXPECT_EQ(host.since_ns.load(), 100);
  EXPECT_EQ(host.seen_ns.load(), 200);
  EXPECT_EQ(host.oom_ns.load(), 200);
  EXPECT_EQ(host.in_loader.load(), 1);
  note_place(host, "a.py:2 in f", false, 2, 300);
  EXPECT_EQ(host.since_ns.load(), 300);
  EXPECT_EQ(host.oom_ns.load(), 200);
  EXPECT_EQ(host.changes.load() % 2, 0);
}

}  // namespace
}  // namespace npu
