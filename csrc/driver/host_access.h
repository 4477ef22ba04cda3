// Access to device memory from the host, outside of tasks.
#pragma once

#include "csrc/driver/registry.h"

namespace npu {

// Lives while the calling thread reads or writes device memory itself. Nothing
// that is queued uses that memory.
class HostAccess {
 public:
  HostAccess() {
    if (driver().host_access) [[unlikely]]
      driver().host_access(1);
  }
  ~HostAccess() {
    if (driver().host_access) [[unlikely]]
      driver().host_access(0);
  }
  HostAccess(const HostAccess&) = delete;
};

}  // namespace npu
