// Memory statistics and the cache.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

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
using namespace py::literals;

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

// By BlockInfo::State.
constexpr const char* kStates[] = {"active_allocated", "active_pending_free",
                                   "inactive"};

py::list snapshot(int device) {
  py::list segments;
  CachingAllocator* a = existing(device);
  if (!a) return segments;
  for (const SegmentInfo& s : a->snapshot()) {
    py::list blocks;
    for (const BlockInfo& b : s.blocks)
      blocks.append(py::dict("address"_a = b.address, "size"_a = b.size,
                             "requested_size"_a = b.requested,
                             "state"_a = kStates[int(b.state)],
                             "frames"_a = py::list()));
    segments.append(py::dict(
        "device"_a = s.device, "address"_a = s.address,
        "total_size"_a = s.total, "allocated_size"_a = s.allocated,
        "active_size"_a = s.active, "requested_size"_a = s.requested,
        "stream"_a = s.stream, "segment_type"_a = s.small ? "small" : "large",
        "segment_pool_id"_a = py::make_tuple(0, s.pool),
        "is_expandable"_a = false, "frames"_a = py::list(),
        "blocks"_a = blocks));
  }
  return segments;
}

// Relaxed: an observer that is attached meanwhile may come too late.
std::atomic<bool> observed_{false};

// Never destroyed: memory may run out while the interpreter ends.
py::list& out_of_memory_observers() {
  static auto* const observers = new py::list();
  return *observers;
}

void tell_out_of_memory(int device, uint64_t asked, uint64_t total,
                        uint64_t free) {
  if (!observed_.load(std::memory_order_relaxed)) return;
  const py::gil_scoped_acquire gil;
  const py::tuple all(out_of_memory_observers());  // one may add another
  for (const py::handle observer : all) {
    try {
      observer(device, asked, total, free);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable(
          "npu_dispatch: an observer of lacking memory");
    }
  }
}

}  // namespace

void bind_memory(py::module_& m) {
  hooks.out_of_memory = tell_out_of_memory;
  m.def("attach_out_of_memory_observer", [](py::function observer) {
    out_of_memory_observers().append(std::move(observer));
    observed_.store(true, std::memory_order_relaxed);
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
    const MemoryInfo info = allocator_of(device).info();
    return std::make_pair(info.free, info.total);
  });
  def(m, "set_per_process_memory_fraction", [](double fraction, int device) {
    allocator_of(device).set_fraction(fraction);
    limit_replacement(fraction, device);
  });
  def(m, "get_per_process_memory_fraction",
      [](int device) { return allocator_of(device).fraction(); });
}

}  // namespace npu
