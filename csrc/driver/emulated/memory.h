// The memory of an emulated device: a range of addresses, of which only the
// pages that somebody writes take memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace npu {

class EmulatedMemory {
 public:
  // Null where the device has not so much left. `limit`: the device's bytes.
  void* allocate(int device, size_t bytes, double limit);
  void free(int device, void* segment, size_t bytes);
  // A segment that another process made.
  void adopt(void* segment, size_t bytes);

  bool has(uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, size_t> segments_;  // by address
  std::map<int, double> taken_;          // by device
};

}  // namespace npu
