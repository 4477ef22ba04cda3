#include "csrc/sanitizer/sanitizer.h"

#include <atomic>
#include <thread>
#include <vector>

#include "csrc/taskqueue/host_wait.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

const int64_t kSize[] = {16}, kStride[] = {1};
const npu_view kWriteView{kSize, kStride, 1, 4, 0, NPU_WRITE};
const npu_view kReadView{kSize, kStride, 1, 4, 0, NPU_READ};
constexpr npu_kernel kWrite{check::run_nothing, "test::write", &kWriteView, 1};
constexpr npu_kernel kRead{check::run_nothing, "test::read", &kReadView, 1};

std::vector<FindingKind> found_;
std::atomic<int> count_{0};

bool note(const Finding* findings, size_t count) {
  for (size_t i = 0; i < count; ++i) found_.push_back(findings[i].kind);
  return false;
}
bool tally(const Finding*, size_t count) {
  count_ += int(count);
  return false;
}

// Two streams under a sanitizer, and a block of the first one.
struct World {
  explicit World(bool (*found)(const Finding*, size_t) = &note)
      : sanitizer({found, nullptr, nullptr}) {
    found_.clear();
    count_ = 0;
    set_observer(&sanitizer);
    for (Stream* s : {&one, &two}) s->set_observed(true);
    sanitizer.allocated(&one, memory, sizeof memory);
  }
  ~World() {
    one.stop();
    two.stop();
    set_observer(nullptr);
  }

  Sanitizer sanitizer;
  Stream one{0, 90, 0, StreamMode::kQueued}, two{0, 91, 0, StreamMode::kQueued};
  float memory[16];
};

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
    w.sanitizer.freed(&w.one, w.memory, sizeof w.memory);
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
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory);
  w.sanitizer.allocated(&w.one, w.memory, 32);
  w.sanitizer.allocated(&w.one, w.memory + 8, 32);

  check::submit(w.one, kWrite, {check::word(w.memory + 8)});

  EXPECT_EQ(found_.size(), 1);
}

TEST(Sanitizer, FindsUseAfterFree) {
  World w;
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory);

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
          w.sanitizer.freed(&stream, own.data(), 64);
        }
        host_wait(stream, stream.tail(), WaitReason::kStreamSync);
      });
  }
  EXPECT_EQ(count_.load(), 0);
}

}  // namespace
}  // namespace npu
