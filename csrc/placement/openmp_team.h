// The OpenMP threads that wait for a thread's next parallel loop.
#pragma once

namespace npu {

// Ends the calling thread's team, where libgomp keeps one. It is for a thread
// that is about to sleep. libgomp counts the threads of all teams, idle ones
// included, and once they exceed the cores no team spins at its barriers any
// more: an idle team of the caller's slows down the kernels on the launcher
// (bench/train.py, case cnn). The thread's next parallel loop makes a new team,
// so this happens at most every 100 ms. Not inside of a parallel loop.
void dismiss_openmp_team();

}  // namespace npu
