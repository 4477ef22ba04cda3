// The price of a launch in steady state: no allocation, no lock, no system
// call, on the caller and on the launcher.
#include <pthread.h>

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/memory/allocator_fixture.h"
#include "tests/cpp/steady/counts.h"

namespace npu {
namespace {

// words: Counts*: what the launcher has counted so far.
int run_report(const npu_kernel*, const uint64_t* words, npu_failure*) {
  *reinterpret_cast<Counts*>(words[0]) = counts;
  return NPU_OK;
}
constexpr npu_kernel kReport{run_report, "test::report", nullptr, 0};

void expect_same(const Counts& before, const Counts& after) {
  EXPECT_EQ(after.allocations - before.allocations, 0);
  EXPECT_EQ(after.locks - before.locks, 0);
  EXPECT_EQ(after.system_calls - before.system_calls, 0);
}

// Queues `n` tasks behind a closed gate, so that the launcher is awake and has
// all of them before it starts.
void submit_steadily(uint32_t n_words) {
  constexpr uint64_t kTasks = 500;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint64_t round = 0; round < 3; ++round) {
    Gate gate;
    Counts caller, launcher_before, launcher_after, unused;
    hold(stream, gate);
    submit(stream, kReport, {word(&launcher_before)});
    caller = counts;
    for (uint64_t i = 0; i < kTasks; ++i)
      submit(stream, kReport, {word(&unused)}, n_words);
    const Counts after = counts;
    submit(stream, kReport, {word(&launcher_after)});
    gate.open();
    drain(stream);
    if (round == 0) continue;  // the arena fills
    expect_same(caller, after);
    expect_same(launcher_before, launcher_after);
  }
}

TEST(Counts, SeeAnAllocationALockAndASystemCall) {
  const Counts before = counts;
  auto number = std::make_unique<int>(1);
  std::mutex mutex;
  mutex.lock();
  mutex.unlock();
  heavy_fence();

  EXPECT_EQ(*number, 1);
  EXPECT_EQ(counts.allocations - before.allocations, 1);
  EXPECT_EQ(counts.locks - before.locks, 1);
  if (kAsymmetricFences)
    EXPECT_EQ(counts.system_calls - before.system_calls, 1);
}

TEST(Steady, LaunchOfAShortTaskAsksForNothing) {
  submit_steadily(Task::kInlineWords);
}

TEST(Steady, LaunchOfASpilledTaskAsksForNothing) {
  submit_steadily(Task::kInlineWords + 30);
}

TEST(Steady, EventRecordAndQueryAskForNothing) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  drain(stream);
  Event event(Timing::kOff);
  const Counts before = counts;

  for (int i = 0; i < 100; ++i) {
    event.record(stream);
    EXPECT_TRUE(event.done());
    event.synchronize();
  }

  expect_same(before, counts);
}

TEST(Steady, WaitForAnotherStreamAsksForNothing) {
  Gate gate_a, gate_b;
  Stream a(0, 0, 0, StreamMode::kQueued), b(0, 1, 0, StreamMode::kQueued);
  submit(a, kGate, {word(&gate_a)});
  submit(b, kGate, {word(&gate_b)});
  gate_a.wait_until_entered();
  gate_b.wait_until_entered();
  const Counts before = counts;

  for (int i = 0; i < 100; ++i) b.wait_for(a, a.tail());

  expect_same(before, counts);
  gate_b.open();
  gate_a.open();
}

// What it takes to note that another stream uses a block is used again: freed
// at once, taken back, and freed in a capture.
TEST(Steady, ABlockThatAnotherStreamUsesAsksForNothing) {
  CachingAllocator memory = make_allocator();
  memory.hold_pool(7);
  Stream &own = first_stream(), &other = second_stream();
  enum class Way { kFreed, kErased, kCaptured };
  const auto allocations = [&](Way way, bool recorded) {
    const Counts before = counts;
    for (int i = 0; i < 50; ++i) {
      if (way == Way::kCaptured) memory.begin_capture(own, 7);
      Block* const block = take(memory, 4096, own);
      if (recorded) memory.record_stream(block, other);
      if (recorded && way == Way::kErased) memory.erase_stream(block, other);
      memory.free(block);
      if (way == Way::kCaptured) memory.end_capture(own);
    }
    return counts.allocations - before.allocations;
  };
  for (const Way way : {Way::kFreed, Way::kErased, Way::kCaptured}) {
    allocations(way, true);  // the first makes what the others need
    EXPECT_EQ(allocations(way, true), allocations(way, false));
  }
}

}  // namespace
}  // namespace npu
