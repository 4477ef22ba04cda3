// The price of a launch in steady state: no allocation, no lock, no system
// call, on the caller and on the launcher.
#include <stdarg.h>

#include "tests/cpp/memory/allocator_fixture.h"

namespace npu::check {
namespace {

// The calling thread's allocations, locks and system calls.
struct Counts {
  uint64_t allocations = 0;
  uint64_t locks = 0;
  uint64_t system_calls = 0;
};
thread_local Counts counts;

}  // namespace
}  // namespace npu::check

using npu::check::counts;

// The linker's --wrap sends the calls of the core and of the tests here;
// libraries keep their own.
extern "C" {

#define COUNT_CALLS(counter, result, name, parameters, ...) \
  result __real_##name parameters;                          \
  result __wrap_##name parameters {                         \
    ++counts.counter;                                       \
    return __real_##name(__VA_ARGS__);                      \
  }
COUNT_CALLS(allocations, void*, malloc, (size_t bytes), bytes)
COUNT_CALLS(allocations, void*, calloc, (size_t n, size_t bytes), n, bytes)
COUNT_CALLS(allocations, void*, aligned_alloc, (size_t to, size_t bytes), to,
            bytes)
// operator new(size_t), and that with a std::align_val_t
COUNT_CALLS(allocations, void*, _Znwm, (size_t bytes), bytes)
COUNT_CALLS(allocations, void*, _ZnwmSt11align_val_t, (size_t bytes, size_t to),
            bytes, to)
COUNT_CALLS(locks, int, pthread_mutex_lock, (pthread_mutex_t * mutex), mutex)

// Only futex and membarrier are called by number. Both take no more arguments
// than travel in registers; anything that a caller has not passed on the stack
// must not be read.
long __real_syscall(long, long, long, long, long, long, long);
long __wrap_syscall(long number, ...) {
  ++counts.system_calls;
  va_list list;
  va_start(list, number);
  long argument[5];
  for (long& a : argument) a = va_arg(list, long);
  va_end(list);
  return __real_syscall(number, argument[0], argument[1], argument[2],
                        argument[3], argument[4], 0);
}

}  // extern "C"

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
    drain(stream, gate);
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

TEST(Steady, LaunchOfAShortOrSpilledTaskAsksForNothing) {
  for (const uint32_t more : {0, 30})
    submit_steadily(Task::kInlineWords + more);
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
  Memory memory({7});
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
