// Raw allocations, private pools, the user's allocator, pinned host memory.
#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <mutex>

#include "csrc/engine/engine.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/guard_memory.h"
#include "csrc/torch/pinned_ranges.h"
#include "csrc/torch/pluggable_memory.h"

namespace py = pybind11;

namespace npu {
namespace {

// The memory that raw_alloc() has handed out and raw_delete() has not taken
// back.
struct Raw {
  std::mutex mutex;
  std::map<uintptr_t, c10::DataPtr> data;
};
Raw& raw() {
  static Raw* const instance = new Raw;  // outlives static destruction
  return *instance;
}

uintptr_t raw_alloc(size_t bytes, int device, int64_t stream) {
  c10::DataPtr data = allocate_bytes(bytes, stream_at(device, stream));
  const uintptr_t address = reinterpret_cast<uintptr_t>(data.get());
  std::lock_guard lock(raw().mutex);
  if (address) raw().data.emplace(address, std::move(data));
  return address;
}

void raw_delete(uintptr_t address) {
  if (!address) return;
  std::map<uintptr_t, c10::DataPtr>::node_type gone;
  {
    std::lock_guard lock(raw().mutex);
    gone = raw().data.extract(address);
  }
  TORCH_CHECK(!gone.empty(),
              "invalid device pointer: ", reinterpret_cast<void*>(address),
              " was not returned by caching_allocator_alloc(), or has been "
              "deleted already");
}

uintptr_t plug(uintptr_t alloc, uintptr_t free) {
  TORCH_CHECK(alloc && free, "a pluggable allocator's function is null");
  auto* plugged = new PluggedAllocator;  // memory may name it for ever
  plugged->alloc = reinterpret_cast<PluggedAllocator::Alloc>(alloc);
  plugged->free = reinterpret_cast<PluggedAllocator::Free>(free);
  return reinterpret_cast<uintptr_t>(plugged);
}

template <typename F>
void hook(F& field, uintptr_t function) {
  field = reinterpret_cast<F>(function);
}

// Gives a plugged allocator one of its optional functions; 0 takes it back.
void plug_hook(uintptr_t handle, const std::string& name, uintptr_t function) {
  auto& p = *reinterpret_cast<PluggedAllocator*>(handle);
  if (name == "init") return hook(p.init, function);
  if (name == "reset") return hook(p.reset, function);
  if (name == "memory_fraction") return hook(p.memory_fraction, function);
  if (name == "record_stream") return hook(p.record_stream, function);
  if (name == "erase_stream") return hook(p.erase_stream, function);
  TORCH_CHECK(false, "a pluggable allocator has no function ", name);
}

const PluggedAllocator* plugged_at(uintptr_t handle) {
  return reinterpret_cast<const PluggedAllocator*>(handle);
}

at::HostAllocator& host() { return *at::getHostAllocator(kNpu); }

void put(py::dict& d, const std::string& key, const at::Stat& stat) {
  d[py::str(key + ".current")] = stat.current;
  d[py::str(key + ".peak")] = stat.peak;
  d[py::str(key + ".allocated")] = stat.allocated;
  d[py::str(key + ".freed")] = stat.freed;
}
void put(py::dict& d, const std::string& key, const at::DurationStat& stat) {
  d[py::str(key + ".total")] = stat.total;
  d[py::str(key + ".max")] = stat.max;
  d[py::str(key + ".min")] = stat.min;
  d[py::str(key + ".count")] = stat.count;
}

py::dict host_stats() {
  const at::HostStats stats = host().get_stats();
  py::dict d;
  put(d, "allocations", stats.allocations);
  put(d, "allocated_bytes", stats.allocated_bytes);
  put(d, "active_requests", stats.active_requests);
  put(d, "active_bytes", stats.active_bytes);
  put(d, "host_alloc_time", stats.host_alloc_time);
  put(d, "host_free_time", stats.host_free_time);
  d["num_host_alloc"] = stats.num_host_alloc;
  d["num_host_free"] = stats.num_host_free;
  return d;
}

}  // namespace

void bind_memory_pools(py::module_& m) {
  def(m, "raw_alloc", &raw_alloc);
  def(m, "raw_delete", &raw_delete);

  def(m, "hold_pool",
      [](int device, uint64_t mempool, bool use_on_oom, bool splits) {
        allocator_of(device).hold_pool(mempool, {use_on_oom, splits});
      });
  def(m, "release_pool", [](int device, uint64_t mempool) {
    allocator_of(device).release_pool(mempool, true);
  });
  def(m, "begin_pool", [](int device, uint64_t mempool, uintptr_t plugged) {
    check_device(device);
    begin_pool(device, mempool, plugged_at(plugged));
  });
  def(m, "end_pool", &end_pool);

  def(m, "plug", &plug);
  def(m, "plug_hook", &plug_hook);
  def(m, "replace_allocator",
      [](uintptr_t plugged) { replace_allocator(plugged_at(plugged)); });
  def(m, "allocator_replaced", &allocator_replaced);
  def(m, "guard_memory", &guard_memory);
  def(m, "memory_guarded", &memory_guarded);

  def(m, "erase_stream", [](const at::Tensor& t, int device, int64_t id) {
    erase_stream(t.storage().data_ptr(), stream_at(device, id));
  });

  def(m, "register_pinned", [](uintptr_t address, size_t bytes) {
    register_pinned(reinterpret_cast<void*>(address), bytes);
  });
  def(m, "unregister_pinned", [](uintptr_t address) {
    unregister_pinned(reinterpret_cast<void*>(address));
  });
  def(m, "host_memory_stats", &host_stats);
  def(m, "host_empty_cache", [] { host().empty_cache(); });
  def(m, "reset_accumulated_host_memory_stats",
      [] { host().reset_accumulated_stats(); });
  def(m, "reset_peak_host_memory_stats", [] { host().reset_peak_stats(); });
}

}  // namespace npu
