// How many cores a kernel may use, and what gives way where there is one.
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/placement/core_share.h"
#include "csrc/placement/machine.h"
#include "csrc/placement/shared_loop.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

TEST_ALONE(CoreShare, IsTheLeastOfWhatIsAllowed) {
  Stream mine(0, 40, 0, StreamMode::kQueued);
  set_core_limit(0, -1, 5);
  set_core_limit(0, 40, 3);
  EXPECT_EQ(core_share_here(8), 8);  // no stream's task
  std::thread([&] {
    EXPECT_TRUE(stream_of_this_thread() == nullptr);
    launch_on_this_thread(mine);
    EXPECT_TRUE(stream_of_this_thread() == &mine);
    EXPECT_EQ(core_share_here(8), 3);
    EXPECT_EQ(core_share_here(2), 2);
    set_core_limit(0, 40, 6);
    EXPECT_EQ(core_share_here(8), 5);
    set_core_limit(0, -1, 0);  // none
    EXPECT_EQ(core_share_here(8), 6);
    set_core_limit(0, 40, 0);
    EXPECT_EQ(core_share_here(8), 8);
    EXPECT_EQ(core_share_here(0), 1);  // at least
  }).join();
  EXPECT_TRUE(stream_of_this_thread() == nullptr);
}

TEST_ALONE(CoreShare, IsAtMostWhatTheEnvironmentAllows) {
  setenv("NPU_DISPATCH_CORES", "2", 1);
  EXPECT_EQ(core_budget(), 2);
  EXPECT_EQ(core_share_here(8), 2);
  EXPECT_EQ(core_share_here(1), 1);
}

TEST(CoreShare, IsNotLimitedWhereTheEnvironmentIsWrongAndSaysSo) {
  const auto refused = in_child([] {
    setenv("NPU_DISPATCH_CORES", "0", 1);  // none is not possible
    return core_share_here(8) == 8 ? 0 : 1;
  });
  EXPECT_EQ(refused.code, 0);
  EXPECT_TRUE(refused.err.find("NPU_DISPATCH_CORES") != std::string::npos);
}

TEST(CoreShare, CountsTheCoresThatTheProcessMayUse) {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(this_machine().cpus, CPU_COUNT(&allowed));
}

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

// An urgent and a normal stream of a process that has one core.
struct OneCore {
  const int set = setenv("NPU_DISPATCH_CORES", "1", 1);
  Stream& urgent = next_stream(0, StreamPool::kHigh);
  Stream& normal = next_stream(0, StreamPool::kNormal);
  std::atomic<int> count{0};  // of the normal stream's tasks
  int seen = 0;               // of them by the urgent stream
  void count_normal_tasks() {
    for (int i = 0; i < kNormalTasks; ++i)
      submit(normal, kCount, {word(&count)});
  }
};

// Both streams begin at the same time, and the urgent one has 10 ms of work.
TEST_ALONE(Priority, NormalTasksGiveWayWhereThereIsOneCore) {
  OneCore w;
  Gate gates[2];
  submit(w.urgent, kGate, {word(&gates[0])});
  submit(w.normal, kGate, {word(&gates[1])});
  for (int i = 0; i < 100; ++i)
    submit(w.urgent, kLook, {word(&w.count), word(&w.seen)});
  w.count_normal_tasks();
  for (Gate& gate : gates) gate.wait_until_entered();
  for (Gate& gate : gates) gate.open();
  drain(w.urgent);
  drain(w.normal);
  EXPECT_EQ(w.count.load(), kNormalTasks);
  EXPECT_TRUE(w.seen < kNormalTasks / 2);
}

TEST_ALONE(Priority, AnUrgentTaskMayWaitForANormalOne) {
  OneCore w;
  Gate gate;
  hold(w.urgent, gate);
  submit(w.normal, kOpen, {word(&gate)});
  drain(w.urgent);
}

TEST_ALONE(Priority, AnUrgentStreamThatWaitsForANormalOneLeavesItTheCore) {
  OneCore w;
  Gate gate;
  submit(w.normal, kGate, {word(&gate)});
  w.count_normal_tasks();
  w.urgent.wait_for(w.normal, w.normal.tail());
  submit(w.urgent, kLook, {word(&w.count), word(&w.seen)});
  gate.open();
  drain(w.urgent);
  EXPECT_EQ(w.seen, kNormalTasks);
}

int nice_of_this_thread() { return getpriority(PRIO_PROCESS, 0); }

// An urgent launcher may start a helper, which works for all launchers from
// then on. Here a launcher is urgent because the program's first thread, this
// one, lowers its own priority: to raise one takes a privilege.
TEST_ALONE(Priority, AHelperHasThatOfTheProgramWhoeverStartsIt) {
  std::atomic<bool> lowered{false};
  std::atomic<int> launcher_nice{0}, helper_nice{0};
  std::thread launcher([&] {
    while (!lowered) pause();
    launcher_nice = nice_of_this_thread();
    struct Pieces {
      const std::thread::id launcher = std::this_thread::get_id();
      std::atomic<bool> helped{false};
      std::atomic<int>& nice;
    } pieces{.nice = helper_nice};
    // Each thread runs one of the two pieces.
    run_shared(
        2, 2,
        [](void* context, int) {
          Pieces& p = *static_cast<Pieces*>(context);
          if (std::this_thread::get_id() == p.launcher) {
            while (!p.helped) pause();
            return;
          }
          p.nice = nice_of_this_thread();
          p.helped = true;
        },
        &pieces);
  });
  EXPECT_EQ(setpriority(PRIO_PROCESS, 0, nice_of_this_thread() + 3), 0);
  lowered = true;
  launcher.join();
  EXPECT_EQ(launcher_nice.load(), nice_of_this_thread() - 3);
  EXPECT_EQ(helper_nice.load(), nice_of_this_thread());
}

}  // namespace
}  // namespace npu
