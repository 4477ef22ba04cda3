// While a stillness lasts nothing runs, whatever is submitted; nothing is lost.
#include "csrc/engine/stillness.h"

#include <atomic>
#include <thread>

#include "csrc/engine/engine.h"
#include "csrc/taskqueue/host_wait.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::in_child;
using check::kFail;
using check::kGate;
using check::submit;
using check::word;

#define REQUIRE(condition) \
  if (!(condition)) return fprintf(stderr, "line %d\n", __LINE__), 1

constexpr uint64_t kLong = 60'000'000'000;

// words: an atomic to add to
int run_count(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<std::atomic<uint64_t>*>(words[0])->fetch_add(1);
  return NPU_OK;
}
constexpr npu_kernel kCount{run_count, "test::count", nullptr, 0};

Stream& side(int i) {
  return *find_stream(0, (int64_t(StreamPool::kNormal) << 5) + i);
}

TEST(Stillness, HoldsWhatOtherThreadsSubmitMeanwhile) {
  const auto ended = in_child([] {
    std::atomic<uint64_t> ran{0}, submitted{0};
    std::atomic<bool> stop{false};
    Stream& a = side(0);
    side(1);
    const auto queued = [&] { return a.tail() - a.retired().value(); };
    std::thread other([&] {
      while (!stop.load()) {
        if (queued() >= 64) continue;  // tasks of some drivers take long
        submit(a, kCount, {word(&ran)});
        submitted.fetch_add(1);
      }
    });
    bool still = true;
    for (int i = 0; i < 20; ++i) {
      Stillness stillness(0, kLong);
      REQUIRE(stillness.reached());
      const uint64_t seen = ran.load(), before = submitted.load();
      // Wait until the other thread has submitted more, or has enough queued.
      while (submitted.load() < before + 32 && queued() < 64)
        std::this_thread::yield();
      still = still && ran.load() == seen;
    }
    stop.store(true);
    other.join();
    host_wait(a, a.tail(), WaitReason::kDeviceSync);
    REQUIRE(still);
    REQUIRE(ran.load() == submitted.load());
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(Stillness, IsReachedBesideAStreamThatFailed) {
  const auto ended = in_child([] {
    Stream& a = side(0);
    submit(a, kFail, {uint64_t(NPU_ERROR)});
    host_wait(a, a.tail(), WaitReason::kDeviceSync);
    {
      Stillness stillness(0, kLong);
      REQUIRE(stillness.reached());
    }
    a.clear_error();
    std::atomic<uint64_t> ran{0};
    REQUIRE(submit(a, kCount, {word(&ran)}));
    host_wait(a, a.tail(), WaitReason::kDeviceSync);
    REQUIRE(ran.load() == 1);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Stillness, IsNotReachedWhileATaskRunsAndLeavesNothingBehind) {
  const auto ended = in_child([] {
    Gate gate;
    Stream& a = side(0);
    submit(a, kGate, {word(&gate)});
    gate.wait_until_entered();
    {
      Stillness stillness(0, 1);
      REQUIRE(!stillness.reached());
    }
    gate.open();
    std::atomic<uint64_t> ran{0};
    submit(a, kCount, {word(&ran)});
    host_wait(a, a.tail(), WaitReason::kDeviceSync);
    REQUIRE(ran.load() == 1);
    Stillness again(0, kLong);
    REQUIRE(again.reached());
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace npu
