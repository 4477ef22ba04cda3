// How many cores a kernel may use, and what gives way where there is one.
#include <sys/resource.h>

#include "csrc/placement/core_share.h"
#include "csrc/placement/machine.h"
#include "csrc/placement/shared_loop.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/system.h"

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
  EXPECT_CONTAINS(refused.err, "NPU_DISPATCH_CORES");
}

TEST(CoreShare, CountsTheCoresThatTheProcessMayUse) {
  const cpu_set_t allowed = allowed_cpus();
  EXPECT_EQ(this_machine().cpus, CPU_COUNT(&allowed));
}

constexpr int kNormalTasks = 3000;

// An urgent and a normal stream of a process that has one core.
struct OneCore {
  const int set = setenv("NPU_DISPATCH_CORES", "1", 1);
  Stream& urgent = next_stream(0, StreamPool::kHigh);
  Stream& normal = next_stream(0, StreamPool::kNormal);
  std::atomic<int> count{0};  // of the normal stream's tasks
  int seen = 0;               // of them by the urgent stream
  const std::function<void()> add = [this] { ++count; };
  // Takes 100 us, then notes how far the other stream has come.
  const std::function<void()> look = [this] {
    for (const uint64_t start = now_ns(); now_ns() - start < 100'000;) pause();
    seen = count.load();
  };
  void count_normal_tasks() {
    for (int i = 0; i < kNormalTasks; ++i) submit(normal, kCall, {word(&add)});
  }
};

// Both streams begin at the same time, and the urgent one has 10 ms of work.
TEST_ALONE(Priority, NormalTasksGiveWayWhereThereIsOneCore) {
  OneCore w;
  Gate gates[2];
  submit(w.urgent, kGate, {word(&gates[0])});
  submit(w.normal, kGate, {word(&gates[1])});
  for (int i = 0; i < 100; ++i) submit(w.urgent, kCall, {word(&w.look)});
  w.count_normal_tasks();
  for (Gate& gate : gates) gate.wait_until_entered();
  for (Gate& gate : gates) drain(w.urgent, gate);
  drain(w.normal);
  EXPECT_EQ(w.count.load(), kNormalTasks);
  EXPECT_TRUE(w.seen < kNormalTasks / 2);
}

TEST_ALONE(Priority, AnUrgentTaskMayWaitForANormalOne) {
  OneCore w;
  Gate gate;
  hold(w.urgent, gate);
  const std::function<void()> open = [&] { gate.open(); };
  submit(w.normal, kCall, {word(&open)});
  drain(w.urgent);
}

TEST_ALONE(Priority, AnUrgentStreamThatWaitsForANormalOneLeavesItTheCore) {
  OneCore w;
  Gate gate;
  submit(w.normal, kGate, {word(&gate)});
  w.count_normal_tasks();
  w.urgent.wait_for(w.normal, w.normal.tail());
  submit(w.urgent, kCall, {word(&w.look)});
  drain(w.urgent, gate);
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
  const int before = nice_of_this_thread();
  EXPECT_EQ(setpriority(PRIO_PROCESS, 0, before + 3), 0);  // 19 is the limit
  lowered = true;
  launcher.join();
  EXPECT_EQ(launcher_nice.load(), before);
  EXPECT_EQ(helper_nice.load(), nice_of_this_thread());
}

}  // namespace
}  // namespace npu
