// Telling libgomp that there are more threads at work than it knows of.
#pragma once

namespace npu {

// While more threads ask for it than have taken it back, the threads of every
// OpenMP team that wait for each other sleep after some microseconds instead of
// spinning for milliseconds.
//
// libgomp's threads spin while the threads of all teams, idle ones included,
// are not more than the cores. libgomp does not count a caller that launches
// beside the kernels: of three threads on two cores, one of the team is then
// preempted for a scheduler's slice and the other spins for it, which slows
// down both the kernels and the caller (bench/dynamic.py). Where nothing else
// runs, spinning is better: a core that was halted takes tens of microseconds
// to come back.
//
// A thread of its own does it, by having an idle team of two meanwhile. It does
// not do so again within 10 ms after the end. Without effect where torch's
// OpenMP is not libgomp.
void ask_for_openmp_crowd();
void take_back_openmp_crowd();

}  // namespace npu
