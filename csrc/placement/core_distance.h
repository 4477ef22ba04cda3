// How two CPUs stand to each other: what a queue between them can do at best.
// A hypervisor moves the CPUs of a virtual machine, between the threads of one
// core and different sockets: within a second, and by a factor of ten.
//
// The caller of each of these runs on another CPU than `cpu`.
#pragma once

namespace npu {

// Median nanoseconds for one cache line to go from the calling thread to `cpu`
// and back; takes about a millisecond.
double line_round_trip(int cpu);

// How much longer arithmetic takes here while `cpu` computes as well: 2 on the
// two threads of one core.
double slowdown_beside(int cpu);

// Whether the two are different cores of one last-level cache: those that the
// project's figures are of. Takes about two milliseconds.
bool is_near(int cpu);

}  // namespace npu
