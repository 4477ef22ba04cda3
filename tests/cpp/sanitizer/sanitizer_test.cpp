#include "csrc/sanitizer/sanitizer.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/program.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/sanitizer/world.h"

namespace npu {
namespace {

using check::count_;
using check::found_;
using check::kRead;
using check::kSize;
using check::kStride;
using check::kWrite;
using check::kWriteView;
using check::tally;
using check::World;

TEST(Sanitizer, FindsTwoUnorderedWrites) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});

  check::submit(w.two, kWrite, {check::word(w.memory)});

  EXPECT_EQ(found_.size(), 1);
  EXPECT_TRUE(found_[0] == FindingKind::kWriteWrite);
}

TEST(Sanitizer, TakesAWaitForAnOrder) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.two.wait_for(w.one, w.one.tail());

  check::submit(w.two, kWrite, {check::word(w.memory)});

  EXPECT_EQ(found_.size(), 0);
}

TEST(Sanitizer, KnowsThatAWaitCoversOnlyWhatCameBeforeTheEvent) {
  World w;
  const uint64_t early = w.one.tail();
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.two.wait_for(w.one, early);

  check::submit(w.two, kRead, {check::word(w.memory)});

  EXPECT_EQ(found_.size(), 1);
}

TEST(Sanitizer, TellsAnEarlierEventFromALaterOneAcrossThreeStreams) {
  World w;
  Stream three{0, 92, 0, StreamMode::kQueued};
  three.set_observed(true);
  check::submit(w.one, kWrite, {check::word(w.memory)});
  const uint64_t before = w.two.tail();
  w.two.wait_for(w.one, w.one.tail());
  const uint64_t after = w.two.tail();

  three.wait_for(w.two, before);
  check::submit(three, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 1);
  three.wait_for(w.two, after);
  check::submit(three, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 1);

  three.stop();
}

TEST(Sanitizer, OrdersLaunchesAfterWhatTheHostWaitedFor) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});
  host_wait(w.one, w.one.tail(), WaitReason::kStreamSync);

  std::jthread([&] {
    check::submit(w.two, kWrite, {check::word(w.memory)});
  }).join();

  EXPECT_EQ(found_.size(), 0);
}

TEST(Sanitizer, FindsReuseAndRespectsRecordStream) {
  for (const bool recorded : {false, true}) {
    World w;
    check::submit(w.one, kWrite, {check::word(w.memory)});
    w.two.wait_for(w.one, w.one.tail());
    check::submit(w.two, kRead, {check::word(w.memory)});
    if (recorded) w.sanitizer.stream_recorded(w.two, w.memory);
    w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
    w.sanitizer.allocated(&w.one, w.memory, sizeof w.memory);

    check::submit(w.one, kWrite, {check::word(w.memory)});

    EXPECT_EQ(found_.size(), recorded ? 0 : 1);
    if (!recorded) EXPECT_TRUE(found_[0] == FindingKind::kReuse);
  }
}

TEST(Sanitizer, FindsReuseOfAPartOfABlock) {
  World w;
  w.two.wait_for(w.one, w.one.tail());
  check::submit(w.two, kRead, {check::word(w.memory)});
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  w.sanitizer.allocated(&w.one, w.memory, 32);
  w.sanitizer.allocated(&w.one, w.memory + 8, 32);

  check::submit(w.one, kWrite, {check::word(w.memory + 8)});

  EXPECT_EQ(found_.size(), 1);
}

TEST(Sanitizer, KeepsOneCopyOfWhatSplitAndJoinedBlocksShare) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});
  const int64_t before = shadow_bytes.load();
  for (int round = 0; round < 60; ++round) {  // 2^60 copies, if any
    w.sanitizer.allocated(&w.one, w.memory, 32);
    w.sanitizer.allocated(&w.one, w.memory + 8, 32);
    w.sanitizer.allocated(&w.one, w.memory, 64);
  }

  EXPECT_TRUE(shadow_bytes.load() < before + 16 * int64_t(sizeof(Access)));
  check::submit(w.two, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 1);
}

// A region keeps 96 accesses at most and forgets the oldest ones.
TEST(Sanitizer, KeepsTheNewestOfManyAccesses) {
  static const int64_t one_size[] = {1};
  static const npu_view one_float{one_size, kStride, 1, 4, 0, NPU_WRITE};
  static const npu_kernel write_one{check::run_nothing, "test::write one",
                                    &one_float, 1};
  constexpr int kMost = 96, kForgotten = kMost / 4;
  std::vector<float> memory(3 * kMost);
  const auto write = [&](Stream& stream, int at) {
    check::submit(stream, write_one, {check::word(&memory[size_t(at)])});
  };
  World w;
  w.sanitizer.allocated(&w.one, memory.data(), memory.size() * sizeof(float));
  for (int i = 0; i < kMost; ++i) write(w.one, i);
  write(w.one, 0);  // the oldest becomes the newest
  write(w.one, kMost);

  // Accesses 1 to 24 are the oldest; later ones replace these and none of the
  // newest.
  for (int i = 1; i <= kForgotten; ++i) write(w.two, i);
  EXPECT_EQ(found_.size(), 0);
  int newest = 0;
  for (const int i : {0, kMost - 1, kMost}) {
    write(w.two, i);
    EXPECT_EQ(found_.size(), ++newest);
  }
}

TEST(Sanitizer, FindsUseAfterFree) {
  World w;
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);

  check::submit(w.one, kRead, {check::word(w.memory)});

  EXPECT_EQ(found_.size(), 1);
  EXPECT_TRUE(found_[0] == FindingKind::kUseAfterFree);
}

TEST(Sanitizer, RefusedTasksDoNotRun) {
  static int ran;
  ran = 0;
  const auto run = [](const npu_kernel*, const uint64_t*, npu_failure*) {
    ++ran;
    return int(NPU_OK);
  };
  const npu_kernel counted{run, "test::count", &kWriteView, 1};
  World w([](const Finding*, size_t) { return true; });
  check::submit(w.one, kWrite, {check::word(w.memory)});

  check::submit(w.two, counted, {check::word(w.memory)});
  host_wait(w.two, w.two.tail(), WaitReason::kStreamSync);

  EXPECT_EQ(ran, 0);
}

TEST(Sanitizer, TakesAFlagForAnOrderWhicheverComesFirst) {
  for (const bool raised_first : {true, false}) {
    World w;
    const auto raise = [&] {
      check::submit(w.one, kWrite, {check::word(w.memory)});
      w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
    };
    const auto take = [&] {
      w.sanitizer.flag_awaited(&w.two, 7, true);
      check::submit(w.two, kRead, {check::word(w.memory)});
    };
    if (raised_first) raise();
    take();
    if (!raised_first) raise();
    check::submit(w.two, kRead, {check::word(w.memory)});
    EXPECT_EQ(found_.size(), 0);

    check::submit(w.one, kWrite, {check::word(w.memory)});  // after the flag
    EXPECT_EQ(found_.size(), 1);
  }
}

TEST(Sanitizer, ForgetsAFlagThatWasTaken) {
  World w;
  w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
  w.sanitizer.flag_awaited(&w.two, 7, true);
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.sanitizer.flag_raised(w.one, w.one.tail(), 8);
  w.sanitizer.flag_awaited(&w.two, 8, false);

  check::submit(w.two, kRead, {check::word(w.memory)});

  EXPECT_EQ(found_.size(), 0);
}

TEST(Sanitizer, OrdersLaunchesAfterAFlagThatTheHostWaitedFor) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
  w.sanitizer.flag_awaited(nullptr, 7, false);
  check::submit(w.two, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 0);

  w.sanitizer.flag_lowered(7);
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.sanitizer.flag_awaited(nullptr, 7, false);
  check::submit(w.two, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 2);  // each of one's write with one of two's reads
}

TEST(Sanitizer, KnowsNothingOfMemoryBeyondABlock) {
  World w;
  alignas(64) static float memory[32];
  w.sanitizer.allocated(&w.one, memory, 64);
  check::submit(w.one, kWrite, {check::word(memory + 16)});
  check::submit(w.two, kWrite, {check::word(memory + 16)});
  EXPECT_EQ(found_.size(), 0);
  check::submit(w.one, kWrite, {check::word(memory + 15)});
  check::submit(w.two, kWrite, {check::word(memory + 15)});
  EXPECT_EQ(found_.size(), 1);
}

// More arguments than there is room for without the heap.
TEST(Sanitizer, LooksAtEveryArgumentOfATaskAndOfAReplay) {
  constexpr uint32_t kMany = 40;
  static const int64_t size[] = {1};
  static npu_view views[kMany];
  for (uint32_t i = 0; i < kMany; ++i)
    views[i] = {size, kStride, 1, 4, uint16_t(i), NPU_WRITE};
  static const npu_kernel wide{check::run_nothing, "test::wide", views, kMany};
  for (const bool replay : {false, true}) {
    World w;
    float memory[kMany];
    w.sanitizer.allocated(&w.one, memory, sizeof memory);
    uint64_t words[kMany];
    for (uint32_t i = 0; i < kMany; ++i) words[i] = check::word(memory + i);
    if (replay) {
      const KernelCall calls[] = {{&wide, words}, {&wide, words}};
      w.sanitizer.replays(w.one, calls, 2);
      check::submit(w.one, check::kNothing, {});
    } else {
      Submission s;
      EXPECT_TRUE(w.one.begin(kMany, s));
      s.task->kernel = &wide;
      std::copy(words, words + kMany, s.words);
      w.one.commit(s);
    }
    const npu_view last{size, kStride, 1, 4, 0, NPU_READ};
    const npu_kernel read{check::run_nothing, "test::read one", &last, 1};
    for (uint32_t i = 0; i < kMany; ++i) {
      check::submit(w.two, read, {words[i]});
      EXPECT_EQ(found_.size(), i + 1);
    }
  }
}

Finding last_;

TEST(Sanitizer, SaysWhoAndWhere) {
  World w([](const Finding* findings, size_t count) {
    last_ = findings[count - 1];
    return false;
  });
  for (Stream* s : {&w.one, &w.two}) check::submit(*s, check::kNothing, {});
  check::submit(w.one, kWrite, {check::word(w.memory)});
  check::submit(w.two, kRead, {check::word(w.memory)});

  EXPECT_TRUE(last_.kind == FindingKind::kReadWrite);
  EXPECT_EQ(last_.block, check::word(w.memory));
  EXPECT_EQ(last_.bytes, sizeof w.memory);
  EXPECT_TRUE(!last_.pinned);
  EXPECT_EQ(last_.device, 0);
  EXPECT_EQ(last_.stream, 90);
  const Side &first = last_.first, &second = last_.second;
  EXPECT_TRUE(first.writes && !first.reads && !second.writes && second.reads);
  EXPECT_TRUE(first.stream == 90 && second.stream == 91);
  EXPECT_TRUE(first.task == 1 && second.task == 1);
  EXPECT_EQ(first.lo, check::word(w.memory));
  EXPECT_EQ(first.hi, check::word(w.memory + 16));
  EXPECT_EQ(second.argument, 0);

  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  check::submit(w.two, kRead, {check::word(w.memory)});
  EXPECT_TRUE(last_.kind == FindingKind::kUseAfterFree);
  EXPECT_EQ(last_.first.stream, 90);
  EXPECT_EQ(last_.second.stream, 91);
  EXPECT_EQ(std::string(last_.first.op), "free");
}

TEST(Sanitizer, FindsWhatTheHostTouchesTooEarly) {
  for (const bool waited : {false, true}) {
    World w;
    w.sanitizer.host_allocated(w.memory, sizeof w.memory);
    check::submit(w.one, kRead, {check::word(w.memory)});
    EXPECT_TRUE(w.sanitizer.pinned_pending());
    EXPECT_TRUE(w.sanitizer.host_pending(w.memory));
    if (waited) host_wait(w.one, w.one.tail(), WaitReason::kStreamSync);
    EXPECT_EQ(w.sanitizer.pinned_pending(), !waited);
    EXPECT_EQ(w.sanitizer.host_pending(w.memory), !waited);
    const uint64_t words[] = {check::word(w.memory)};

    w.sanitizer.host_touches(kRead, words);
    EXPECT_EQ(found_.size(), 0);  // both only read
    w.sanitizer.host_touches(kWrite, words);
    EXPECT_EQ(found_.size(), waited ? 0 : 1);
    if (!waited) EXPECT_TRUE(found_[0] == FindingKind::kHostWrite);

    w.sanitizer.host_freed(w.memory);
    w.sanitizer.host_touches(kWrite, words);
    EXPECT_EQ(found_.size(), waited ? 0 : 1);
  }
}

TEST(Sanitizer, KnowsNothingOfMemoryThatWasTheDevicesBeforeItWasPinned) {
  World w;
  check::submit(w.one, kWrite, {check::word(w.memory)});
  w.sanitizer.host_allocated(w.memory, sizeof w.memory);
  EXPECT_TRUE(!w.sanitizer.host_pending(w.memory));
  check::submit(w.two, kWrite, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 0);
}

TEST(Sanitizer, TakesAReplayForATaskThatTouchesAllOfIt) {
  World w;
  float other[16];
  w.sanitizer.allocated(&w.one, other, sizeof other);
  const uint64_t first[] = {check::word(w.memory)};
  const uint64_t second[] = {check::word(other)};
  const KernelCall calls[] = {{&kRead, first}, {&kWrite, second}};
  w.sanitizer.replays(w.one, calls, 2);
  check::submit(w.one, check::kNothing, {});

  check::submit(w.two, kRead, {check::word(w.memory)});
  EXPECT_EQ(found_.size(), 0);
  check::submit(w.two, kRead, {check::word(other)});
  EXPECT_EQ(found_.size(), 1);
  w.two.wait_for(w.one, w.one.tail());
  check::submit(w.two, kRead, {check::word(other)});
  EXPECT_EQ(found_.size(), 1);
}

TEST(Sanitizer, RefusesAReplayBeforeItIsQueued) {
  struct Refused {};
  Sanitizer sanitizer({[](const Finding*, size_t) { return true; },
                       [] { throw Refused(); }, nullptr});
  Stream stream{0, 93, 0, StreamMode::kQueued};
  float memory[16];
  sanitizer.allocated(&stream, memory, sizeof memory);
  sanitizer.freed(&stream, memory, sizeof memory, FreedTo::kStream);
  const uint64_t words[] = {check::word(memory)};
  const KernelCall call{&kRead, words};

  bool refused = false;
  try {
    sanitizer.replays(stream, &call, 1);
  } catch (const Refused&) {
    refused = true;
  }
  EXPECT_TRUE(refused);
}

TEST(Sanitizer, NamesForeignWork) {
  class Nothing final : public Program {
    int run(Stream&, const DeviceQueue&, const uint64_t*,
            npu_failure&) override {
      return NPU_OK;
    }
    void dropped(Stream&, const uint64_t*) override {}
  } program;
  static const npu_view view{kSize, kStride, 1, 4, 1, NPU_WRITE};
  static const npu_kernel foreign{nullptr, "library::call", &view, 1};
  World w;
  check::submit(w.one, kRead, {check::word(w.memory)});

  Submission s;
  EXPECT_TRUE(w.two.begin(2, s));
  s.task->marks.kind = TaskKind::kProgram;
  s.task->kernel = &foreign;
  s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(&program));
  s.words[1] = check::word(w.memory);
  w.two.commit(s);
  host_wait(w.two, w.two.tail(), WaitReason::kStreamSync);

  EXPECT_EQ(found_.size(), 1);
  EXPECT_TRUE(found_[0] == FindingKind::kUnorderedForeignLaunch);
}

TEST(Sanitizer, CountsItsMemoryAndForgetsIt) {
  World w;
  const int64_t before = shadow_bytes.load();
  std::vector<float> blocks(16 * 100);
  for (int i = 0; i < 100; ++i)
    w.sanitizer.allocated(&w.one, &blocks[size_t(16 * i)], 64);
  EXPECT_TRUE(shadow_bytes.load() >= before + 100 * int64_t(sizeof(Region)));

  w.sanitizer.clear();

  EXPECT_TRUE(shadow_bytes.load() < before + 100);
}

// A report may end in the user's code, which turns the sanitizer off and on.
World* cleared_ = nullptr;
bool clear(const Finding* findings, size_t count) {
  check::note(findings, count);
  cleared_->sanitizer.clear();
  cleared_->sanitizer.adopt(cleared_->two, cleared_->memory,
                            sizeof cleared_->memory);
  return false;
}

TEST(Sanitizer, MayBeClearedWhileItReports) {
  World w(&clear);
  cleared_ = &w;
  for (int turn = 1; turn <= 2; ++turn) {
    check::submit(w.one, kWrite, {check::word(w.memory)});
    EXPECT_EQ(found_.size(), size_t(turn - 1));
    check::submit(w.two, kRead, {check::word(w.memory)});
    EXPECT_EQ(found_.size(), size_t(turn));
    // The one that was refused nothing is not known any more.
    EXPECT_EQ(w.sanitizer.counts().accesses, 0);
    EXPECT_EQ(w.sanitizer.counts().tasks, 0);
  }
}

// Under TSan as well: four threads, each on a block of its own and on one
// that only the first stream uses.
TEST(Sanitizer, ServesManyThreads) {
  World w(&tally);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::vector<float> own(16);
        Stream& stream = t % 2 ? w.one : w.two;
        for (int i = 0; i < 300; ++i) {
          w.sanitizer.allocated(&stream, own.data(), 64);
          check::submit(stream, kWrite, {check::word(own.data())});
          check::submit(w.one, kRead, {check::word(w.memory)});
          if (i % 50 == 0)
            host_wait(stream, stream.tail(), WaitReason::kStreamSync);
          w.sanitizer.freed(&stream, own.data(), 64, FreedTo::kStream);
        }
        host_wait(stream, stream.tail(), WaitReason::kStreamSync);
      });
  }
  EXPECT_EQ(count_.load(), 0);
}

}  // namespace
}  // namespace npu
