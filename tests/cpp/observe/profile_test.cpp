#include "csrc/observe/profile.h"

#include <thread>
#include <vector>

#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::drain;
using check::Gate;
using check::kAppend;
using check::kGate;
using check::submit;
using check::word;

std::vector<ProfiledRun> runs_of(Stream& stream) {
  std::vector<ProfiledRun> runs;
  stream.kept_profile()->take(runs);
  return runs;
}

TEST(Profile, HasEachTaskOnceAndInItsThreadsScope) {
  constexpr uint64_t kThreads = 3, kEach = 5'000;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  stream.set_profiled(true);

  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      enter_scope(Scope::kRange, 100 + thread);
      for (uint64_t i = 0; i < kEach; ++i) {
        enter_scope(Scope::kOperator, 1 + thread);
        submit(stream, kAppend, {word(&got), i});
        leave_scope(Scope::kOperator);
      }
      leave_scope(Scope::kRange);
    });
  for (std::thread& thread : threads) thread.join();
  drain(stream);
  stream.set_profiled(false);

  const auto runs = runs_of(stream);
  EXPECT_EQ(runs.size(), kThreads * kEach);
  std::vector<uint64_t> of_thread(kThreads);
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
  for (const uint64_t n : of_thread) EXPECT_EQ(n, kEach);
  EXPECT_TRUE(runs_of(stream).empty());
}

TEST(Profile, LeavesOutWhatWasLaunchedBeforeIt) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
  submit(stream, kAppend, {word(&got), 1});
  stream.set_profiled(true);
  submit(stream, kAppend, {word(&got), 2});
  gate.open();
  drain(stream);

  const auto runs = runs_of(stream);
  EXPECT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].launch.position, 2);
}

TEST(Profile, DoesNotCountAWaitAsWork) {
  Stream first(0, 0, 0, StreamMode::kQueued),
      second(0, 1, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  Gate gate;
  second.set_profiled(true);
  submit(first, kGate, {word(&gate)});
  gate.wait_until_entered();
  second.wait_for(first, first.tail());
  submit(second, kAppend, {word(&got), 1});
  gate.open();
  drain(second);

  const auto runs = runs_of(second);
  EXPECT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].launch.position, 1);
}

TEST(Profile, HasTheTasksOfAnInlineStream) {
  Stream stream(0, 0, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  stream.set_profiled(true);
  submit(stream, kAppend, {word(&got), 1});

  EXPECT_EQ(runs_of(stream).size(), 1);
}

}  // namespace
}  // namespace npu
