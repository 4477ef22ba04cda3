// The figures that decide about cores, each with the bench that shows what it
// is good for. Change one, run its bench.
#pragma once

#include <cstdint>

namespace npu::tuning {

// Launchers that share a CPU: how often each looks, and after how long without
// a look it counts as idle. bench/cores.py, two streams of small kernels.
inline constexpr uint64_t kBetweenLooksNs = 500'000;
inline constexpr uint64_t kAtWorkNs = 20'000'000;

// A caller that needs a core of its own: the most that a launch takes one that
// goes on, and for how long it has been doing so. bench/dynamic.py.
inline constexpr uint64_t kMostPerTaskNs = 100'000;
inline constexpr uint64_t kLaunchesForNs = 4'000'000;
// How long libgomp is told of no more threads again. bench/dynamic.py.
inline constexpr uint64_t kCrowdPauseNs = 10'000'000;
// How often a thread may end its OpenMP team. bench/train.py, case resnet.
inline constexpr uint64_t kTeamPauseNs = 100'000'000;

// The longest that a normal task waits for urgent ones: no bench's, but a bound
// where an urgent task waits for it in somebody else's code
// (tests/cpp/placement/priority_test.cpp).
inline constexpr uint64_t kMostGivingWayNs = 1'000'000;

// An idle launcher's spin: least, most, and while pauses of up to that have
// been recurring. A wake-up costs the caller some 20 us; a training step has
// pauses longer than kMaxSpinUs, where Python goes from backward() to the
// optimizer. parked_submit of bench/cpp/ring_bench; bench/train.py, case mlp.
inline constexpr uint64_t kMinSpinUs = 10, kMaxSpinUs = 60;
inline constexpr uint64_t kPatientSpinUs = 250;
inline constexpr int kMostPatience = 8;
// Away for longer between two looks, it was preempted, and does not spin in so
// many gaps. parked_submit of bench/cpp/ring_bench.
inline constexpr uint64_t kPreemptedUs = 200;
inline constexpr int kSkipAfterPreemption = 32;
// How long a launcher that nobody waits for leaves the queue alone, and for how
// many tasks a wait counts. bench/enqueue.py, ring_push_polled of bench/cpp.
inline constexpr uint64_t kHurriedTasks = 16;
inline constexpr uint64_t kShortestRestNs = 3'000;
inline constexpr int kMostDoublings = 3;

// Before sleeping: a caller for a task, and a stream for another's.
// bench/launch.py and bench/cores.py.
inline constexpr uint64_t kHostWaitSpinNs = 20'000;
inline constexpr uint64_t kHoldSpinNs = 60'000;

// Under a quota of CPU time all spinning of a process is at most one part in
// so many of it. Simulated, for want of a machine with a quota: a caller of
// eight streams has more than twice as many tasks of one core's time as without
// (tests/cpp/placement/simulation_test.cpp).
inline constexpr uint64_t kSpinPart = 8;

// membarrier(2) interrupts every core that runs the process. Launchers that go
// to sleep do it no more often than this, 50 in a millisecond: at about 1 us
// for who is interrupted (4 us for who calls; futex_wake of bench/cpp), a
// twentieth of each core. A launcher that may not takes a nap instead.
inline constexpr uint64_t kFenceWindowNs = 10'000'000;
inline constexpr uint64_t kMostFences = 500;
inline constexpr uint64_t kNapNs = 100'000;

}  // namespace npu::tuning
