// OpenMP's teams of threads: whether they spin, and when they end.
#pragma once

#include <cstdint>

namespace npu {

// Somebody needs a core. Until `until`, on now_ns()'s clock as `now` is, the
// threads of every OpenMP team that wait for each other sleep after some
// microseconds instead of spinning for milliseconds.
//
// libgomp's threads spin while the threads of all teams, idle ones included,
// are not more than the cores. libgomp does not count a caller that launches
// beside the kernels: of three threads on two cores, one of the team is then
// preempted for a scheduler's slice and the other spins for it, or a launcher
// that has been woken waits until its own worker has spun enough; which slows
// down both the kernels and the caller (bench/dynamic.py, bench/neighbour.py).
// Where nobody launches, spinning is better: a core that was halted takes tens
// of microseconds to come back.
//
// A thread of its own does it, by having an idle team of two meanwhile, the
// crowd, which takes some milliseconds to make: not where no kernel has had a
// team for as long as kTeamStaysNs, nor where torch's OpenMP is not libgomp.
void ask_for_openmp_crowd(uint64_t now, uint64_t until);
// A kernel begins that has a team.
void note_openmp_team();
// Whether one has begun lately.
bool openmp_team_was_used();

// Whether somebody has asked for the crowd.
bool cores_are_wanted(uint64_t now);

// Whether the threads of this thread's OpenMP team probably spin between its
// loops: they begin one at once, and leave no core to others.
bool openmp_team_spins();
// Calls work(context) on this thread and on the `width` - 1 others of its team,
// and waits for all of them. Only where openmp_team_spins().
void run_in_openmp_team(int width, void (*work)(void*), void* context);

// Ends the calling thread's team, where libgomp keeps one. It is for a thread
// that is about to sleep: an idle team counts among libgomp's threads, and once
// these exceed the cores no team spins at its barriers any more. An idle team
// of the caller's slows down the kernels on the launcher (bench/train.py, case
// cnn). The thread's next parallel loop makes a new team, so this happens at
// most every 100 ms. Not inside of a parallel loop.
void dismiss_openmp_team();

}  // namespace npu
