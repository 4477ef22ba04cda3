// How far two CPUs are apart: the floor of what a queue between them can do. A
// hypervisor moves the CPUs of a virtual machine, which changes it tenfold.
#pragma once

namespace npu {

// Median nanoseconds for one cache line to go from the calling thread to `cpu`
// and back; takes about a millisecond. The caller runs elsewhere.
double line_round_trip(int cpu);

// Whether that means two cores of one last-level cache: those of a figure.
constexpr bool is_near(double round_trip) {
  return round_trip > 35 && round_trip < 190;
}

}  // namespace npu
