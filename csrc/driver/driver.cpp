#include "csrc/driver/driver.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/base/env.h"
#include "csrc/driver/emulated/spec.h"

namespace npu {
namespace {

#define NPU_TEXT_OF(name) #name
#define NPU_NAME_OF(name) NPU_TEXT_OF(name)
#define NPU_ENTRY NPU_NAME_OF(NPU_DRIVER_ENTRY) "()"

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw std::runtime_error("npu_dispatch: NPU_DRIVER=" + name + ": " + why);
}

// Copies a table of an earlier or later minor version: members that it lacks
// are null, and nobody calls those that it has beyond ours.
npu_driver as_ours(const npu_driver& table) {
  npu_driver ours{};
  memcpy(&ours, &table, std::min(size_t(table.size), sizeof ours));
  return ours;
}

const npu_driver* load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse(path, std::string("cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<npu_driver_entry>(
      dlsym(library, NPU_NAME_OF(NPU_DRIVER_ENTRY)));
  if (!entry) refuse(path, "is no driver: it exports no function " NPU_ENTRY);
  const npu_driver* const table = entry();
  if (!table) refuse(path, NPU_ENTRY " returned null");
  return table;
}

}  // namespace

const npu_driver* find_driver(const char* name) {
  for (const npu_driver* d :
       {&host_driver(), &null_driver(), &emulated_driver()})
    if (!strcmp(d->name, name)) return d;
  return nullptr;
}

std::string fault_of(const npu_driver& table) {
  if (table.abi != NPU_DRIVER_ABI)
    return "was built for version " + std::to_string(table.abi) +
           " of driver.h, this is version " + std::to_string(NPU_DRIVER_ABI) +
           "; build it again with this version's header";
  const npu_driver d = as_ours(table);
  const std::pair<const char*, bool> needed[] = {
      {"name", d.name && *d.name},
      {"device_count", d.device_count != nullptr},
      {"memory_total", d.memory_total != nullptr},
      {"segment_alloc", d.segment_alloc != nullptr},
      {"segment_free", d.segment_free != nullptr},
      {"queue_create", d.queue_create != nullptr},
      {"queue_destroy", d.queue_destroy != nullptr},
  };
  for (const auto& [member, there] : needed)
    if (!there) return std::string("its table lacks ") + member;
  if (const int n = d.device_count(); n < 0 || n > kMaxDevices)
    return "has " + std::to_string(n) + " devices; this version takes from 0 " +
           "to " + std::to_string(kMaxDevices);
  if (!d.launch == !d.submit)
    return std::string("its table has ") +
           (d.launch ? "both launch and submit" : "neither launch nor submit") +
           "; a driver has one of them";
  if (d.submit && !d.queue_reset)
    return "its table lacks queue_reset, which goes with submit";
  return "";
}

const npu_driver& driver() {
  static const npu_driver chosen = [] {
    const std::string name = env_string("NPU_DRIVER", "host");
    const npu_driver* const found = name.find('/') == std::string::npos
                                        ? find_driver(name.c_str())
                                        : load(name);
    if (!found)
      refuse(name,
             "no such driver; known: host, null, emulated, or the path of a "
             "shared library");
    if (found == &emulated_driver()) emulated_spec();  // throws if it is wrong
    if (const std::string fault = fault_of(*found); !fault.empty())
      refuse(name, fault);
    return as_ours(*found);
  }();
  return chosen;
}

bool reads_zeros() {
  static const bool zeros = driver().submit == emulated_driver().submit;
  return zeros;
}

}  // namespace npu
