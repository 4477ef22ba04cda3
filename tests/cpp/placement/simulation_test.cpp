// The real policy on machines that we do not have.
#include "tests/cpp/placement/simulation.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/cpp/check.h"

namespace npu {
namespace {

using sim::Findings;
using sim::Hardware;
using sim::kMs;
using sim::kUs;
using sim::Load;
using sim::simulate;

constexpr int kCpus[] = {1, 2, 8, 64, 192};

// A machine; with more than 8 CPUs it has two threads per core and two nodes.
Hardware machine(int cpus) {
  const int many = cpus > 8 ? 2 : 1;
  return {cpus, many, many, {}};
}

// A caller that launches nearly all the time, one with pauses that are longer
// than a launcher spins, and one that waits at each step.
Load load(const char* kind, int streams) {
  Load load;
  load.streams = streams;
  if (kind == std::string("rare")) {
    load.burst = streams;
    load.launch_ns = 1 * kUs;
    load.pause_ns = 300 * kUs;
  }
  load.waits = kind == std::string("waits");
  return load;
}

constexpr const char* kKinds[] = {"busy", "rare", "waits"};

template <typename Check>
void for_all(Check check) {
  for (const int cpus : kCpus)
    for (const int streams : {1, 2, 8, 64})
      for (const char* kind : kKinds)
        check(cpus, streams, simulate(machine(cpus), load(kind, streams)));
}

TEST(Simulation, IsTheSameEachTime) {
  Load several = load("busy", 4);
  several.processes = 2;
  several.tasksets = 20;
  const Findings once = simulate(machine(8), several);
  EXPECT_TRUE(once.tasks > 0 && once == simulate(machine(8), several));
}

TEST(Simulation, NoLauncherIsOnItsProducersCpuWhereAnotherIsFree) {
  int wakes = 0, moves = 0;
  for_all([&](int, int, const Findings& f) {
    EXPECT_EQ(f.on_producer, 0);
    wakes += f.wakes;
    moves += f.moves;
  });
  EXPECT_TRUE(wakes > 10'000 && moves > 500);
}

TEST(Simulation, LaunchersOfAProcessSpread) {
  for_all([](int cpus, int streams, const Findings& f) {
    // Where there is no free CPU, what a launcher saw of the others gets old.
    EXPECT_TRUE(f.crowded_turns <= (streams < cpus ? 0 : 1000));
    // Where there is room, each launcher moves once or twice.
    EXPECT_TRUE(streams >= cpus || f.moves <= 2 * streams);
  });
}

TEST(Simulation, ALauncherKeepsUpWithItsCaller) {
  for (const int cpus : {2, 8, 64, 192}) {
    // 100 tasks in 500 us, then 100 us without.
    const Findings f = simulate(machine(cpus), load("busy", 1));
    EXPECT_TRUE(f.tasks > 33'000);
    EXPECT_TRUE(f.wakes < 10);  // it spins through the pauses
  }
}

// Processes that know nothing of each other.
TEST(Simulation, ProcessesDoNotAllTakeTheSameCpus) {
  for (const int cpus : {64, 192}) {
    Load several = load("busy", 4);
    several.processes = 8;
    several.bound = true;
    const Findings f = simulate(machine(cpus), several);
    const auto middle = f.moved_to.begin() + cpus / 2;
    const int low = std::accumulate(f.moved_to.begin(), middle, 0);
    const int high = std::accumulate(middle, f.moved_to.end(), 0);
    EXPECT_TRUE(low + high >= 8 * 3);
    EXPECT_TRUE(low < 2 * high && high < 2 * low);
    EXPECT_TRUE(*std::max_element(f.most_launchers.begin(),
                                  f.most_launchers.end()) <= 4);
    EXPECT_EQ(f.on_producer, 0);
  }
}

TEST(Simulation, SpinningIsBoundedByTheQuota) {
  for (const double cores : {0.5, 1.0, 1.5, 8.0})
    for (const int processes : {1, 4})
      for (const int streams : {1, 8, 64}) {
        Hardware limited = machine(64);
        limited.quota = {uint64_t(cores * 100 * kMs), 100 * kMs};
        for (const char* kind : kKinds) {
          Load l = load(kind, streams);
          l.processes = processes;
          const Findings f = simulate(limited, l);
          // What is taken at the end of a period may be used in the next.
          EXPECT_TRUE(f.worst_period_spin_ns <= limited.quota.ns / 4);
          EXPECT_TRUE(f.spun_ns <= 3 * limited.quota.ns / 8);
        }
      }
}

// A caller and its launchers share the time of one core and need all of it, so
// time that is spent spinning is missing.
TEST(Simulation, ALimitedSpinLeavesTheQuotaToTheTasks) {
  Hardware limited = machine(8);
  limited.quota = {100 * kMs, 100 * kMs};
  Load l = load("busy", 8);
  const Findings knows = simulate(limited, l);
  l.tells_quota = false;
  const Findings does_not = simulate(limited, l);
  EXPECT_TRUE(knows.tasks > 2 * does_not.tasks);
}

TEST(Simulation, CpusThatSomebodyGivesALauncherStay) {
  for (const int cpus : {2, 8, 64, 192})
    for (const char* kind : kKinds) {
      Load l = load(kind, 4);
      l.tasksets = 200;
      const Findings f = simulate(machine(cpus), l);
      EXPECT_EQ(f.undone, 0);
      EXPECT_TRUE(f.tasks > 100);
    }
}

TEST(Simulation, LaunchersInterruptAllCoresSoOftenAtMost) {
  int most = 0, naps = 0;
  for_all([&](int, int, const Findings& f) {
    // 500 in 10 ms; across the border of two windows twice as many.
    EXPECT_TRUE(f.worst_fences <= 1000);
    EXPECT_TRUE(f.fences <= 20 * 500);
    most = std::max(most, f.fences);
    naps += f.naps;
  });
  EXPECT_EQ(most, 20 * 500);
  EXPECT_TRUE(naps > 0);
}

// A team has a thread for each CPU, and the caller needs a CPU, too. A member
// that spins for the next kernel has the CPU of the launcher that wakes up for
// it: where nobody tells libgomp of the caller, for most of the time.
TEST(Simulation, NoLauncherWaitsForAMemberOfATeamThatSpins) {
  for (const int cpus : {2, 4, 8, 64})
    for (const int burst : {20, 100})
      for (const bool waits : {false, true}) {
        Load l;
        l.team = cpus;
        l.burst = burst;
        l.waits = waits;
        l.pause_ns = 200 * kUs;
        Findings f = simulate(machine(cpus), l);
        EXPECT_TRUE(f.behind_spinner_ns <= 1 * kMs);
        // All that the caller's own time allows.
        EXPECT_TRUE(f.tasks > (burst == 20 ? 13'000 : 28'000));
        // Nor does it where others have all CPUs, too.
        l.neighbours = cpus;
        f = simulate(machine(cpus), l);
        EXPECT_TRUE(f.behind_spinner_ns <= 1 * kMs);
      }
}

// A kernel of 160 us in as many pieces as there are CPUs, whose caller goes on.
Load shared_load(int cpus, int neighbours) {
  Load l;
  l.pieces = cpus;
  l.task_ns = 160 * kUs;
  l.burst = 40;
  l.waits = true;
  l.pause_ns = 2 * kMs;
  l.neighbours = neighbours;
  return l;
}

// Where each thread has its piece, as in a team, the kernel waits for one that
// has lost its CPU, for as long as the other's slice is: worse than no helpers.
TEST(Simulation, NoKernelWaitsForAHelperThatHasNoCpu) {
  uint64_t worst_of_owned = UINT64_MAX;
  for (const int cpus : {2, 4, 8, 64})
    for (const int neighbours : {0, 1, 2}) {
      Load l = shared_load(cpus, neighbours);
      const Findings shared = simulate(machine(cpus), l);
      l.pieces_are_owned = true;
      const Findings owned = simulate(machine(cpus), l);
      l.pieces = 1;
      const Findings alone = simulate(machine(cpus), l);
      EXPECT_TRUE(shared.tasks >= alone.tasks);
      EXPECT_TRUE(shared.tasks >= owned.tasks);
      // With a CPU for everybody half of the time is saved, and more.
      if (cpus > 2 + neighbours)
        EXPECT_TRUE(2 * shared.tasks > 3 * alone.tasks);
      EXPECT_TRUE(shared.huddled_ns <= 5 * kMs);
      worst_of_owned =
          std::min(worst_of_owned, 100 * owned.tasks / alone.tasks);
    }
  EXPECT_TRUE(worst_of_owned < 50);  // percent
}

TEST(Simulation, TeamsAreNotMadeAgainInALoop) {
  for (const int cpus : {2, 8, 64})
    for (const char* kind : kKinds) {
      Load l = load(kind, 2);
      l.team = 2;
      l.span_ns = 1000 * kMs;
      const Findings f = simulate(machine(cpus), l);
      EXPECT_TRUE(f.worst_team_ends <= 10);
      EXPECT_TRUE(f.worst_crowds <= 100);
      // A caller that goes on: the crowd stays.
      EXPECT_TRUE(kind != kKinds[0] || cpus == 2 || f.worst_crowds == 1);
      EXPECT_TRUE(kind != kKinds[2] || cpus > 2 || f.worst_team_ends == 10);
    }
}

}  // namespace
}  // namespace npu
