// Makes allocations of host memory fail. A program that uses this links
// no_memory.cpp, and wraps aligned_alloc and mmap.
#pragma once

#include <atomic>

namespace npu::check {

// While one exists, neither aligned_alloc() nor mmap() gives the core memory.
// (A limit of the address space would not work the same way under the
// sanitizers.)
class NoMemory {
 public:
  NoMemory() { there_is_none = true; }
  ~NoMemory() { there_is_none = false; }
  NoMemory(const NoMemory&) = delete;
  static inline std::atomic<bool> there_is_none{false};
};

// While one exists, `operator new` fails: everywhere, after `spared` calls of
// the process; only once where `once`.
class NoNew {
 public:
  explicit NoNew(long spared = 0, bool once = false);
  ~NoNew() { end(); }
  NoNew(const NoNew&) = delete;
  static void end();
  // Whether a call has failed since the last construction.
  static bool has_failed();
};

// The calling thread gets memory at any time: it stands for a device.
void always_gets_memory();

}  // namespace npu::check
