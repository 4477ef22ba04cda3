// The OpenMP threads that wait for a thread's next parallel loop.
#pragma once

namespace npu {

// Ends the calling thread's team, where libgomp keeps one: for a thread that is
// about to sleep. libgomp counts the threads of all teams, idle ones too, and
// once they exceed the cores no loop of any team spins at its barriers any
// more; an idle team of the caller's made a ResNet's kernels on the launcher
// 10 % slower. The thread's next parallel loop makes a new team. Therefore not
// more often than every 100 ms, and never inside of a loop.
void dismiss_openmp_team();

}  // namespace npu
