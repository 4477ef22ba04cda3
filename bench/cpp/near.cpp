// For bench/enqueue.py, which loads it.
#include "bench/cpp/core_distance.h"

// Whether that CPU is another core near the calling thread's.
extern "C" [[gnu::visibility("default")]] bool is_near(int cpu) {
  return npu::bench::is_near(cpu);
}
