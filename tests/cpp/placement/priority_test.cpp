#include <stdlib.h>

#include <atomic>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/taskqueue/host_wait.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::in_child;
using check::kGate;
using check::submit;
using check::word;

// words: atomic<int>*
int run_count(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<std::atomic<int>*>(words[0])->fetch_add(1);
  return NPU_OK;
}
// Takes 100 us, then notes how far the other stream has come.
// words: atomic<int>*, int*
int run_look(const npu_kernel*, const uint64_t* words, npu_failure*) {
  for (const uint64_t start = now_ns(); now_ns() - start < 100'000;) pause();
  *reinterpret_cast<int*>(words[1]) =
      reinterpret_cast<std::atomic<int>*>(words[0])->load();
  return NPU_OK;
}
// words: Gate*
int run_open(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Gate*>(words[0])->open();
  return NPU_OK;
}
constexpr npu_kernel kCount{run_count, "test::count", nullptr, 0};
constexpr npu_kernel kLook{run_look, "test::look", nullptr, 0};
constexpr npu_kernel kOpen{run_open, "test::open", nullptr, 0};

constexpr int kNormalTasks = 3000;

// Both streams begin at the same time, and the other one has 10 ms of work.
// Returns how many of the normal stream's tasks had run when the other stream
// ended.
int ahead_of(StreamPool pool) {
  static std::atomic<int> count;
  static int seen;
  Gate gates[2];
  Stream& other = next_stream(0, pool);
  Stream& normal = next_stream(0, StreamPool::kNormal);
  submit(other, kGate, {word(&gates[0])});
  submit(normal, kGate, {word(&gates[1])});
  for (int i = 0; i < 100; ++i)
    submit(other, kLook, {word(&count), word(&seen)});
  for (int i = 0; i < kNormalTasks; ++i) submit(normal, kCount, {word(&count)});
  for (Gate& gate : gates) gate.wait_until_entered();
  for (Gate& gate : gates) gate.open();
  host_wait(other, other.tail(), WaitReason::kStreamSync);
  host_wait(normal, normal.tail(), WaitReason::kStreamSync);
  return count == kNormalTasks ? seen : -1;
}

TEST(Priority, NormalTasksGiveWayWhereThereIsOneCore) {
  setenv("NPU_DISPATCH_CORES", "1", 1);
  const auto ended = in_child([] {
    const int ran = ahead_of(StreamPool::kHigh);
    return ran >= 0 && ran < kNormalTasks / 2 ? 0 : 1;
  });
  unsetenv("NPU_DISPATCH_CORES");
  EXPECT_EQ(ended.code, 0);
}

TEST(Priority, AnUrgentTaskMayWaitForANormalOne) {
  setenv("NPU_DISPATCH_CORES", "1", 1);
  const auto ended = in_child([] {
    Gate gate;
    Stream& urgent = next_stream(0, StreamPool::kHigh);
    Stream& normal = next_stream(0, StreamPool::kNormal);
    submit(urgent, kGate, {word(&gate)});
    gate.wait_until_entered();
    submit(normal, kOpen, {word(&gate)});
    host_wait(urgent, urgent.tail(), WaitReason::kStreamSync);
    return 0;
  });
  unsetenv("NPU_DISPATCH_CORES");
  EXPECT_EQ(ended.code, 0);
}

TEST(Priority, AnUrgentStreamThatWaitsForANormalOneLeavesItTheCore) {
  setenv("NPU_DISPATCH_CORES", "1", 1);
  const auto ended = in_child([] {
    std::atomic<int> count{0};
    int seen = 0;
    Gate gate;
    Stream& urgent = next_stream(0, StreamPool::kHigh);
    Stream& normal = next_stream(0, StreamPool::kNormal);
    submit(normal, kGate, {word(&gate)});
    for (int i = 0; i < kNormalTasks; ++i)
      submit(normal, kCount, {word(&count)});
    urgent.wait_for(normal, normal.tail());
    submit(urgent, kLook, {word(&count), word(&seen)});
    gate.open();
    host_wait(urgent, urgent.tail(), WaitReason::kStreamSync);
    return seen == kNormalTasks ? 0 : 1;
  });
  unsetenv("NPU_DISPATCH_CORES");
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace npu
