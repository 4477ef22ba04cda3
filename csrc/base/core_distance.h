// How far apart two CPUs are, which bounds what a queue between them can do. A
// hypervisor moves the CPUs of a virtual machine within seconds, from two
// threads of one core to different sockets, which changes the distance tenfold.
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

// Whether the two are different cores that share a last-level cache, as in the
// project's published figures. Takes about two milliseconds.
bool is_near(int cpu);

}  // namespace npu
