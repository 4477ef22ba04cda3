#include "csrc/stats/collectives.h"

#include <atomic>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

LoggedCollective call(int group, uint64_t seq) {
  static const int64_t sizes[2] = {2, 3};
  static const TensorShape shape{sizes, 2, 6, true, -1};
  return log_collective(
      {group, seq, false, "all_reduce", 7, 1000, 60, -1, 0, 5, &shape, 1});
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
    return found->state.load() % CollectiveEntry::kStates;
  };
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kScheduled));
  entry.started(2000);
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kStarted));
  EXPECT_EQ(found->started_ns.load(), 2000);
  entry.ended(3000, false);
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kCompleted));
  EXPECT_EQ(found->ended_ns.load(), 3000);
  EXPECT_EQ(found->shapes[1].load(), 2);
  EXPECT_EQ(found->shapes[2].load(), 3);
  EXPECT_EQ(found->shapes[3].load(), 0);
}

TEST(Collectives, OneThatHasNotEndedIsNeverOverwritten) {
  const int group = log_group("two", "", "0", 0, 1);
  LoggedCollective open = call(group, 1);
  for (uint64_t i = 0; i < 3 * kCollectives; ++i)
    call(group, 10 + i).ended(1, false);
  const CollectiveEntry* found = find(group, 1);
  EXPECT_EQ(found != nullptr, true);
  open.ended(5, false);
  EXPECT_EQ(found && found->ended_ns.load() == 5, true);
}

TEST(Collectives, MoreThanThereIsRoomForAreCountedAndHarmNone) {
  const int group = log_group("three", "", "0", 0, 1);
  const uint64_t before = collective_log().dropped.load();
  std::vector<LoggedCollective> open;
  for (int i = 0; i < kCollectives + 5; ++i) open.push_back(call(group, 7));
  EXPECT_EQ(collective_log().dropped.load() - before, 5);
  for (LoggedCollective& entry : open) entry.ended(1, false);
}

TEST(Collectives, ThreadsNeverShareAnEntry) {
  const int group = log_group("four", "", "0", 0, 1);
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t from) {
    for (uint64_t i = from; i < from + 5000; ++i) {
      LoggedCollective entry = call(group, i);
      entry.started(i);
      const CollectiveEntry* mine = find(group, i);
      if (!mine || mine->started_ns.load() != i) ++wrong;
      entry.ended(i, false);
      if (i % 100) i += 50;
    }
  };
  std::thread other(work, 1'000'000);
  work(2'000'000);
  other.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace npu
