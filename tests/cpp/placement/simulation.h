// Simulates a machine that we do not have, in turns of some microseconds: CPUs,
// threads of cores, nodes, a quota of CPU time and a simple scheduler. On it
// run processes with callers and launchers, which do what the real policy says.
//
// The scheduler is as unfavourable as real ones can be. A thread that wakes up
// is put on the CPU of its waker, if it may run there, as in a virtual machine;
// else it stays where it was. Only every 20 ms is a waiting thread moved to the
// first idle CPU.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include "csrc/placement/machine.h"

namespace npu::sim {

constexpr uint64_t kTurnNs = 5'000;
constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

struct Hardware {
  int cpus = 2;
  int threads_per_core = 1;  // CPU n and n + cores share one
  int nodes = 1;             // of consecutive cores
  Quota quota;               // of all processes together
  Topology topology() const;
};

// What the callers of a process do, again and again.
struct Load {
  int processes = 1;
  int streams = 1;  // of each process; one caller feeds them in turn
  uint64_t launch_ns = 5 * kUs;  // a task costs its caller
  uint64_t task_ns = 5 * kUs;    // and its launcher
  int burst = 100;               // tasks before a pause
  uint64_t pause_ns = 100 * kUs;
  bool waits = false;  // for all of them, before the pause
  int team = 1;        // OpenMP threads of a kernel
  int pieces = 0;      // of a kernel that helpers take part in; 0: none does
  // Who runs a piece is settled when the kernel begins, as in an OpenMP team.
  bool pieces_are_owned = false;
  int neighbours = 0;       // threads of other processes, which never sleep
  bool bound = false;       // callers stay on one CPU each
  int tasksets = 0;         // how often somebody gives some launcher other CPUs
  bool tells_quota = true;  // to the policy
  uint64_t span_ns = 200 * kMs;
};

struct Findings {
  // How often a launcher was woken on its waker's CPU though it may run
  // elsewhere, or left a shared CPU for its producer's though another that it
  // may use had none of the process's launchers.
  int on_producer = 0;
  std::vector<int> moved_to;        // how often, by CPU
  std::vector<int> most_launchers;  // the most at work at once, by CPU
  // Turns in the last half in which two launchers of a process were at work on
  // one CPU while another that they may use had none.
  int crowded_turns = 0;
  // How often a launcher was awake with other CPUs than its owner gave it last,
  // or asleep with CPUs that the owner did not give it.
  int undone = 0;
  uint64_t worst_period_spin_ns = 0;  // of all processes, in a quota's period
  uint64_t spun_ns = 0;
  int worst_fences = 0;  // of a process, in a window of 10 ms
  int fences = 0, naps = 0, wakes = 0, moves = 0;
  uint64_t tasks = 0;
  int worst_team_ends = 0;  // of a caller, in a second
  int worst_crowds = 0;     // of a process, in a second
  // How long launchers waited for a CPU on which a worker of their own process
  // span, and how long workers span in all.
  uint64_t behind_spinner_ns = 0, workers_spun_ns = 0;
  // How long a launcher and a helper of its process shared a CPU while another
  // one was idle.
  uint64_t huddled_ns = 0;

  bool operator==(const Findings&) const = default;
};

Findings simulate(const Hardware& hardware, const Load& load);

}  // namespace npu::sim
