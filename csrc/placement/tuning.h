// The figures that decide about cores, each with the bench that shows its
// effect: run it after a change.
#pragma once

#include <cstdint>

namespace npu::tuning {

// A caller that launches so many tasks, each within kSeldomNs, needs a core.
// bench/neighbour.py, case compile_step launches one in a step.
inline constexpr uint64_t kManyLaunches = 8, kSeldomNs = 20'000;
// A launcher that has waited for a core for a kWaitPart-th of kBetweenWaitsNs
// or more, for kLongWaitNs on average, shares it with another process, for
// kNeighboursStayNs at least.
// bench/neighbour.py, case cnn beside two.
inline constexpr uint64_t kBetweenWaitsNs = 15'000'000, kWaitPart = 5;
inline constexpr uint64_t kLongWaitNs = 100'000;
inline constexpr uint64_t kNeighboursStayNs = 500'000'000;
// How long after a launch OpenMP's teams do not spin, where a kernel had one in
// the last kTeamStaysNs. bench/neighbour.py: case generate has pauses of a
// millisecond, case cnn waits for its kernels. bench/products.py has no team.
inline constexpr uint64_t kCrowdStaysNs = 20'000'000;
inline constexpr uint64_t kTeamStaysNs = 200'000'000;
// How often a thread may end its OpenMP team. bench/train.py, case cnn.
inline constexpr uint64_t kTeamPauseNs = 100'000'000;

// The longest that a normal task waits for urgent ones, which may wait for it
// in somebody else's code (tests/cpp/placement/priority_test.cpp).
inline constexpr uint64_t kMostGivingWayNs = 1'000'000;

// How long an idle launcher spins: at least, at most, and while pauses of up to
// kPatientSpinUs have been recurring. A wake-up costs the caller a system call,
// and a training step has pauses longer than kMaxSpinUs, where Python goes from
// backward() to the optimizer. parked_submit of bench/cpp/ring_bench;
// bench/train.py, case mlp.
inline constexpr uint64_t kMinSpinUs = 10, kMaxSpinUs = 60;
inline constexpr uint64_t kPatientSpinUs = 250;
inline constexpr int kMostPatience = 8;
// A launcher that was away for longer than kPreemptedUs between two looks was
// preempted, and does not spin in the next kSkipAfterPreemption gaps.
// parked_submit of bench/cpp/ring_bench.
inline constexpr uint64_t kPreemptedUs = 200;
inline constexpr int kSkipAfterPreemption = 32;
// How many tasks a wait counts for, and how long a launcher that nobody waits
// for leaves the queue alone. bench/enqueue.py, ring_push_polled of bench/cpp.
inline constexpr uint64_t kHurriedTasks = 16;
inline constexpr uint64_t kShortestRestNs = 3'000;
inline constexpr int kMostDoublings = 3;

// A helper spins for its next loop before it sleeps: for kHelperSpinNs while
// somebody needs a core, for kWaitingHelperSpinNs while nobody does. A launcher
// spins for kHelperWaitSpinNs for a helper that has not finished its piece of
// the launcher's loop, before it sleeps. bench/products.py;
// kWaitingHelperSpinNs: bench/neighbour.py, cases sac and vae.
inline constexpr uint64_t kHelperSpinNs = 30'000;
inline constexpr uint64_t kWaitingHelperSpinNs = 1'000'000;
inline constexpr uint64_t kHelperWaitSpinNs = 20'000;

// How long a caller spins before it sleeps for a task, and up to which usual
// length of its waits it spins on; how long a stream spins for another stream.
// bench/launch.py; bench/neighbour.py, case decode; bench/cores.py.
inline constexpr uint64_t kHostWaitSpinNs = 20'000;
inline constexpr uint64_t kPatientWaitNs = 150'000;
inline constexpr uint64_t kHoldSpinNs = 60'000;

// Under a quota of CPU time all spinning of a process takes at most one part in
// kSpinPart of it: a caller and its launchers may need all of the quota, and
// time that is spent spinning is missing.
inline constexpr uint64_t kSpinPart = 8;

// membarrier(2) interrupts every core of the process, for about 1 us. Threads
// that go to sleep call it at most 50 times in a millisecond, a twentieth of
// the time. A thread that may not call it sleeps for kNapNs instead. (An await
// has no thread that could, so it calls it each time; the event loop takes some
// 20 us for each await.)
inline constexpr uint64_t kFenceWindowNs = 10'000'000;
inline constexpr uint64_t kMostFences = 500;
inline constexpr uint64_t kNapNs = 100'000;

}  // namespace npu::tuning
