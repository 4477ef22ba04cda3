// Sets of CPUs in tests.
#pragma once

#include <sched.h>

#include <initializer_list>

namespace npu::check {

inline cpu_set_t cpus(std::initializer_list<int> of) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : of) CPU_SET(size_t(cpu), &set);
  return set;
}

}  // namespace npu::check
