#include <thread>
#include <vector>

#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::kAppend;
using check::kGate;
using check::submit;
using check::word;

TEST(InlineStream, RunsTheTaskOnTheCaller) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;

  for (uint64_t i = 0; i < 10; ++i) {
    submit(stream, kAppend, {word(&got), i}, uint32_t(2 + 10 * i));
    EXPECT_EQ(got.size(), i + 1);
    EXPECT_TRUE(stream.idle());
  }

  EXPECT_EQ(stream.tail(), 10);
  EXPECT_EQ(stream.block().bypassed[int(Bypass::kSyncLaunchStream)].load(), 10);
  EXPECT_EQ(stream.block().parks.load(), 0);
}

TEST(InlineStream, WaitsForTheQueuedStreamItDependsOn) {
  Stream queued(0, 0, 0, StreamMode::kQueued);
  Stream direct(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  Gate gate;
  submit(queued, kGate, {word(&gate)});
  submit(queued, kAppend, {word(&got), 1});
  std::thread opener([&] {
    gate.wait_until_entered();
    gate.open();
  });

  EXPECT_TRUE(direct.wait_for(queued, queued.tail()));
  EXPECT_EQ(got.size(), 1);
  submit(direct, kAppend, {word(&got), 2});

  EXPECT_EQ(got.size(), 2);
  opener.join();
}

TEST(InlineStream, TakesTurnsAmongThreads) {
  constexpr uint64_t kThreads = 3, kEach = 1'000;
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  std::vector<std::thread> threads;

  for (uint64_t id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      for (uint64_t i = 0; i < kEach; ++i)
        submit(stream, kAppend, {word(&got), id});
    });
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(got.size(), kThreads * kEach);
  EXPECT_EQ(stream.retired().value(), kThreads * kEach);
}

}  // namespace
}  // namespace npu
