// The parts of a simulated machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "csrc/placement/affinity_loan.h"
#include "csrc/placement/idle_policy.h"
#include "csrc/placement/policy.h"
#include "csrc/placement/team_policy.h"
#include "tests/cpp/placement/simulation.h"

namespace npu::sim {

inline constexpr uint64_t kStart = 10'000 * kMs;
inline constexpr uint64_t kFenceNs = 10 * kMs;  // a window's length

// Gives the same numbers each time.
struct Random {
  uint32_t state = 1;
  uint32_t below(uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return uint32_t((uint64_t{state >> 8} * n) >> 24);
  }
};

// Counts events, and keeps the most in any window of `window_ns`.
class Rate {
 public:
  explicit Rate(uint64_t window_ns) : window_ns_(window_ns) {}
  void count(uint64_t now) {
    times_.push_back(now);
    while (times_.front() + window_ns_ <= now) times_.pop_front();
    most = std::max(most, int(times_.size()));
  }
  int most = 0;

 private:
  const uint64_t window_ns_;
  std::deque<uint64_t> times_;
};

class World;
struct Process;
struct Launcher;

struct Thread {
  virtual ~Thread() = default;
  // Called where the thread has the CPU for a turn.
  virtual void turn(World& world) = 0;

  cpu_set_t allowed;
  int cpu = 0;
  bool runnable = true;
  uint64_t ready_at = 0;  // where it sleeps for a time
};

// A member of a launcher's OpenMP team: after a kernel it spins for the next
// one as long as libgomp lets it, and sleeps.
struct Worker : Thread {
  explicit Worker(Process& p) : process(p) {}
  void turn(World& world) override;

  Process& process;
  uint64_t until = 0;
};

// Runs pieces of launchers' kernels (placement/shared_loop.h).
struct Helper : Thread {
  explicit Helper(Process& p) : process(p) {}
  void turn(World& world) override;
  void offer(World& world, Launcher& launcher);
  void leave(World& world);

  Process& process;
  Launcher* loop = nullptr;  // whose pieces it may run
  bool taken = false;        // it has begun to
  int ran = 0;               // of this loop's
  uint64_t left_ns = 0;      // of its piece
  uint64_t spins_until = 0;
  AffinityLoan loan;
};

// Has nothing to do with us, and always something to do.
struct Neighbour : Thread {
  void turn(World&) override {}
};

struct Launcher : Thread {
  explicit Launcher(Process& p);
  void tell_cpus();
  void turn(World& world) override;
  void start_gap(World& world);
  void end_spin(World& world);
  void sleep(World& world);
  void wake(World& world, int waker);
  void look(World& world);
  // Runs its kernel's pieces for `turn`, and reduces it. True: the kernel ends.
  bool run_pieces(World& world, uint64_t& turn);
  bool take_piece(World& world, int& ran);
  void helper_left(World& world, int from);

  Process& process;
  const int seat;
  cpu_set_t given;        // by its owner, last
  IdlePolicy idle{1000};  // its ticks are ns
  AffinityLoan loan;
  int waker = -1;
  std::vector<std::unique_ptr<Worker>> team;

  enum { kWorks, kSpins, kParked, kNaps, kAwaitsHelper } state = kWorks;
  uint64_t queued = 0, retired = 0, wanted = 0;
  uint64_t left_ns = 0;  // of its task, or of a piece
  int begun = 0;         // pieces of its kernel; 0: the kernel has not begun
  int ran = 0;           // by itself
  uint64_t awaits_from = 0;
  uint64_t gap_from = 0, granted_at = 0, granted_ns = 0;
  bool slept = false;
  uint64_t next_look = 0;
  OtherWork others;
  int seen_on = -1;  // at its last look
  uint64_t seen_at = 0;
};

struct Caller : Thread {
  explicit Caller(Process& p) : process(p) {}
  void turn(World& world) override;

  Process& process;
  int left = 0;  // of the burst
  size_t stream = 0;
  uint64_t spent_ns = 0;
  bool waiting = false;
  TeamEnds ends;
  Rate ended{1000 * kMs};
};

struct Process {
  Process(const Machine& machine) : policy(machine, true) {}

  Policy policy;
  std::vector<std::unique_ptr<Launcher>> launchers;
  std::vector<std::unique_ptr<Helper>> helpers;
  std::unique_ptr<Caller> caller;
  Crowd crowd;
  uint64_t asked_until = 0, team_at = 0;
  // As libgomp does: of all teams, and the first thread.
  int managed_threads() const {
    size_t n = crowd.there() ? 2 : 1;
    for (const auto& l : launchers) n += l->team.size();
    return int(n);
  }
  Rate fenced{kFenceNs}, crowds{1000 * kMs};
};

class World {
 public:
  World(const Hardware& h, const Load& l);
  Findings run();

  // Puts a thread that wakes up on a CPU.
  void place_woken(Thread& thread, int waker);
  bool idle(int cpu) const { return count_[size_t(cpu)] == 0; }
  void sleep(Thread& thread, uint64_t until);
  void spins(uint64_t ns) {
    found.spun_ns += ns;
    period_spin_ns += ns;
  }
  void move(Thread& thread, int cpu);
  void note_woken(const Launcher& launcher);
  bool free_of_launchers(const Process& process, const cpu_set_t& allowed,
                         int but) const;

  const Hardware hardware;
  const Load load;
  const Topology topology;
  uint64_t now = kStart;
  Findings found;
  Random random;
  uint64_t period_spin_ns = 0;

 private:
  void turn();
  void balance();
  void taskset();
  void check();
  void check_spinners();
  void check_helpers();
  void new_period();

  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  std::vector<Thread*> threads_;
  std::vector<int> count_;        // runnable threads of a CPU
  std::vector<Thread*> current_;  // of a CPU
  std::vector<uint64_t> since_;   // when that began
  uint64_t period_end_ = 0, used_ns_ = 0;
};

}  // namespace npu::sim
