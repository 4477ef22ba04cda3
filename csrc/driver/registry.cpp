#include "csrc/driver/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>

#include "csrc/base/env.h"
#include "csrc/driver/host/host_driver.h"
#include "csrc/driver/null/null_driver.h"

namespace npu {

const npu_driver* find_driver(const char* name) {
  for (const npu_driver* d : {&host_driver(), &null_driver()})
    if (!strcmp(d->name, name)) return d;
  return nullptr;
}

const npu_driver& driver() {
  static const npu_driver& chosen = []() -> const npu_driver& {
    const std::string name = env_string("NPU_DRIVER", "host");
    const npu_driver* found = find_driver(name.c_str());
    if (!found || found->abi != NPU_DRIVER_ABI) {
      fprintf(
          stderr,
          "npu_dispatch: NPU_DRIVER=%s: no such driver; known: host, null\n",
          name.c_str());
      abort();
    }
    return *found;
  }();
  return chosen;
}

}  // namespace npu
