#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"
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

// Stands in for the GIL.
std::mutex gil_;
std::atomic<bool> has_gil_{false};

void* release_gil() {
  gil_.unlock();
  return &gil_;
}
void take_gil(void*) { gil_.lock(); }

// Python code that lets another thread have the GIL, as I/O does.
int run_python(const npu_kernel*, const uint64_t*, npu_failure*) {
  gil_.unlock();
  has_gil_.wait(false);
  gil_.lock();
  return NPU_OK;
}
constexpr npu_kernel kPython{run_python, "test::python", nullptr, 0,
                             NPU_KERNEL_ON_HOST};

TEST(InlineStream, GivesTheGilUpWhileItWaitsForItsTurn) {
  set_host_wait_hooks({release_gil, take_gil, nullptr, nullptr, nullptr});
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  gil_.lock();
  std::thread second([&] {
    std::lock_guard gil(gil_);
    has_gil_ = true;
    has_gil_.notify_all();
    submit(stream, kAppend, {word(&got), 1});
  });
  submit(stream, kPython, {});
  gil_.unlock();
  second.join();
  set_host_wait_hooks({});
  EXPECT_EQ(got.size(), 1);
  EXPECT_EQ(stream.retired().value(), 2);
}

// words: Stream*, vector<uint64_t>*, then n others. Launches two tasks on the
// stream that it runs on, one of them with its words in the arena, then writes
// down its words.
int run_nested(const npu_kernel*, const uint64_t* words, npu_failure*) {
  Stream& stream = *reinterpret_cast<Stream*>(words[0]);
  auto* got = reinterpret_cast<std::vector<uint64_t>*>(words[1]);
  const uint64_t before = stream.tail();
  submit(stream, kAppend, {word(got), 100 + before});
  submit(stream, kAppend, {word(got), 200 + before}, 60);
  // The task was done where it was launched, with a number of its own.
  EXPECT_EQ(got->back(), 200 + before);
  EXPECT_EQ(stream.tail(), before + 2);
  EXPECT_TRUE(stream.idle());
  for (uint64_t i = 2; i < 50; ++i) got->push_back(words[i]);
  return NPU_OK;
}
constexpr npu_kernel kNested{run_nested, "test::nested", nullptr, 0,
                             NPU_KERNEL_ON_HOST};

TEST(InlineStream, KeepsATaskThatLaunchesOthersOnIt) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  // Round by round the arena gives out what the last one gave back.
  for (uint64_t round = 0; round < 3; ++round) {
    got.clear();
    const uint64_t tail = stream.tail();
    Submission s;
    EXPECT_TRUE(stream.begin(50, s));
    s.task->kernel = &kNested;
    s.words[0] = word(&stream);
    s.words[1] = word(&got);
    for (uint64_t i = 2; i < 50; ++i) s.words[i] = 1000 * round + i;
    stream.commit(s);

    EXPECT_EQ(s.position, tail + 2);
    EXPECT_EQ(stream.tail(), tail + 3);
    EXPECT_TRUE(stream.idle());
    EXPECT_EQ(got.size(), 50);
    for (uint64_t i = 2; i < 50; ++i) EXPECT_EQ(got[i], 1000 * round + i);
  }
  EXPECT_EQ(stream.block().bypassed[int(Bypass::kSyncLaunchStream)].load(), 9);
}

std::vector<std::thread::id> ended_on_;

// It is told once for each task that the caller launches, however many tasks
// that one launches.
TEST(InlineStream, TellsWhenATaskHasRunOnItsCaller) {
  ended_on_.clear();
  set_after_direct_task_hook(
      [] { ended_on_.push_back(std::this_thread::get_id()); });
  Stream direct(0, 64, 0, StreamMode::kInline);
  Stream queued(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  submit(direct, kAppend, {word(&got), 1});
  EXPECT_EQ(ended_on_.size(), 1);
  submit(direct, kNested, {word(&direct), word(&got)}, 50);
  EXPECT_EQ(ended_on_.size(), 2);
  submit(queued, kAppend, {word(&got), 1});
  queued.stop();
  set_after_direct_task_hook(nullptr);
  submit(direct, kAppend, {word(&got), 1});
  EXPECT_EQ(ended_on_.size(), 2);
  for (const std::thread::id thread : ended_on_)
    EXPECT_TRUE(thread == std::this_thread::get_id());
}

TEST(InlineStream, GivesTheErrorOfANestedTaskItsNumber) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  static constexpr npu_kernel kLaunchesAFailure{
      [](const npu_kernel*, const uint64_t* words, npu_failure*) {
        submit(*reinterpret_cast<Stream*>(words[0]), check::kFail,
               {uint64_t(NPU_ERROR)});
        return int(NPU_OK);
      },
      "test::launches_a_failure", nullptr, 0, NPU_KERNEL_ON_HOST};
  std::vector<uint64_t> got;
  submit(stream, kAppend, {word(&got), 1});
  submit(stream, kLaunchesAFailure, {word(&stream)});

  EXPECT_TRUE(stream.failed());
  EXPECT_EQ(stream.error()->op, std::string("test::fail"));
  EXPECT_EQ(stream.error()->task, 1);
  EXPECT_EQ(stream.tail(), 3);
}

}  // namespace
}  // namespace npu
