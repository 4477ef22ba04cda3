// Memory statistics and the cache.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/base/hooks.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/pluggable_memory.h"

namespace py = pybind11;

namespace npu {
namespace {

// Statistics must not initialise: null before the first allocation.
CachingAllocator* existing(int device) {
  check_device(device);
  return allocator_exists(device) ? &allocator(device) : nullptr;
}

template <uint64_t CachingAllocator::Totals::*kTotal>
uint64_t get(int device) {
  CachingAllocator* a = existing(device);
  return a ? a->totals().*kTotal : 0;
}

const char* state_name(BlockInfo::State state) {
  switch (state) {
    case BlockInfo::State::kActive:
      return "active_allocated";
    case BlockInfo::State::kPendingFree:
      return "active_pending_free";
    case BlockInfo::State::kInactive:
      return "inactive";
  }
  return "";
}

py::list snapshot(int device) {
  py::list segments;
  CachingAllocator* a = existing(device);
  if (!a) return segments;
  for (const SegmentInfo& s : a->snapshot()) {
    py::list blocks;
    for (const BlockInfo& b : s.blocks) {
      py::dict block;
      block["address"] = b.address;
      block["size"] = b.size;
      block["requested_size"] = b.requested;
      block["state"] = state_name(b.state);
      block["frames"] = py::list();
      blocks.append(block);
    }
    py::dict segment;
    segment["device"] = s.device;
    segment["address"] = s.address;
    segment["total_size"] = s.total;
    segment["allocated_size"] = s.allocated;
    segment["active_size"] = s.active;
    segment["requested_size"] = s.requested;
    segment["stream"] = s.stream;
    segment["segment_type"] = s.small ? "small" : "large";
    segment["segment_pool_id"] = py::make_tuple(0, s.pool);
    segment["is_expandable"] = false;
    segment["frames"] = py::list();
    segment["blocks"] = blocks;
    segments.append(segment);
  }
  return segments;
}

// Never destroyed: memory may run out while the interpreter ends.
py::list& out_of_memory_observers() {
  static auto* const observers = new py::list();
  return *observers;
}

void tell_out_of_memory(int device, uint64_t asked, uint64_t total,
                        uint64_t free) {
  const py::gil_scoped_acquire gil;
  const py::tuple all(out_of_memory_observers());  // one may add another
  for (const py::handle observer : all) {
    try {
      observer(device, asked, total, free);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("npu_dispatch: an observer of lacking memory");
    }
  }
}

}  // namespace

void bind_memory(py::module_& m) {
  m.def("attach_out_of_memory_observer", [](py::function observer) {
    out_of_memory_observers().append(std::move(observer));
    hooks.out_of_memory = tell_out_of_memory;
  });
  def(m, "memory_allocated", &get<&CachingAllocator::Totals::allocated>);
  def(m, "max_memory_allocated",
      &get<&CachingAllocator::Totals::max_allocated>);
  def(m, "memory_reserved", &get<&CachingAllocator::Totals::reserved>);
  def(m, "max_memory_reserved", &get<&CachingAllocator::Totals::max_reserved>);
  def(m, "memory_stats", [](int device) {
    CachingAllocator* a = existing(device);
    return a ? a->stats() : std::map<std::string, int64_t>();
  });
  def(m, "memory_snapshot", &snapshot);
  def(m, "reset_peak_memory_stats", [](int device) {
    if (CachingAllocator* a = existing(device)) a->reset_peak_stats();
  });
  def(m, "reset_accumulated_memory_stats", [](int device) {
    if (CachingAllocator* a = existing(device)) a->reset_accumulated_stats();
  });
  def(m, "empty_cache", &empty_cache);
  m.def("report_memory", &report_memory);
  def(m, "set_allocator_settings",
      [](size_t max_split_size, size_t max_non_split_rounding,
         double memory_fraction, double gc_threshold,
         const std::array<uint32_t, AllocatorSettings::kPowers>& divisions) {
        set_allocator_settings({max_split_size, max_non_split_rounding,
                                memory_fraction, gc_threshold, divisions});
      });
  def(m, "mem_get_info", [](int device) {
    check_device(device);
    const MemoryInfo info = allocator(device).info();
    return std::make_pair(info.free, info.total);
  });
  def(m, "set_per_process_memory_fraction", [](double fraction, int device) {
    check_device(device);
    allocator(device).set_fraction(fraction);
    limit_replacement(fraction, device);
  });
  def(m, "get_per_process_memory_fraction", [](int device) {
    check_device(device);
    return allocator(device).fraction();
  });
}

}  // namespace npu
