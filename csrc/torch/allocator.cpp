#include "csrc/torch/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <string.h>

#include <atomic>

#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/graph/lifetime.h"
#include "csrc/host/scratch_memory.h"
#include "csrc/stats/segment.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/pluggable_memory.h"

namespace npu {
namespace {

// Relaxed everywhere: a profile only has to see what its own thread does after
// the profile began.
std::atomic<bool> reports_memory_{false};

c10::Device device_of(int index) {
  return c10::Device(kNpu, c10::DeviceIndex(index));
}

// Tells the profiler of `bytes` taken at `address`; negative: given back.
[[gnu::noinline]] void tell_profiler(void* address, int64_t bytes, int device) {
  const DeviceBlock& now = segment().devices[device];
  c10::reportMemoryUsageToProfiler(
      address, bytes, now.allocated.load(std::memory_order_relaxed),
      now.reserved.load(std::memory_order_relaxed), device_of(device));
}

inline bool reports_memory() {
  return reports_memory_.load(std::memory_order_relaxed);
}

[[gnu::hot]] void free_block(void* context) {
  Block* block = static_cast<Block*>(context);
  const int device = block->device;
  if (!reports_memory()) [[likely]]
    return allocator(device).free(block);
  void* const address = block->ptr;
  const int64_t bytes = int64_t(block->size);
  allocator(device).free(block);
  tell_profiler(address, -bytes, device);
}

int64_t value_in(const std::map<std::string, int64_t>& stats,
                 const std::string& key) {
  const auto at = stats.find(key);
  return at == stats.end() ? 0 : at->second;
}

// Fills torch's three statistics of a key from the core's flat ones.
void fill(c10::CachingAllocator::StatArray& to, const char* name,
          const std::map<std::string, int64_t>& from) {
  const char* pools[] = {"all", "small_pool", "large_pool"};
  for (int pool = 0; pool < 3; ++pool) {
    const std::string key = std::string(name) + "." + pools[pool] + ".";
    to[pool].current = value_in(from, key + "current");
    to[pool].peak = value_in(from, key + "peak");
    to[pool].allocated = value_in(from, key + "allocated");
    to[pool].freed = value_in(from, key + "freed");
  }
}

struct NpuAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return allocate_bytes(bytes, usable_stream(current_device()));
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    // torch calls it only for two storages of one device.
    Stream& stream = usable_stream(current_device());
    host_wait(stream, stream.tail(), WaitReason::kCopy);
    memcpy(to, from, bytes);
  }

  bool initialized() override { return npu::initialized(); }
  void emptyCache(c10::MempoolId_t) override { empty_cache(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_stream(data, from_torch(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto from = allocator_of(index).stats();
    fill(stats.allocation, "allocation", from);
    fill(stats.segment, "segment", from);
    fill(stats.active, "active", from);
    fill(stats.inactive_split, "inactive_split", from);
    fill(stats.allocated_bytes, "allocated_bytes", from);
    fill(stats.reserved_bytes, "reserved_bytes", from);
    fill(stats.active_bytes, "active_bytes", from);
    fill(stats.inactive_split_bytes, "inactive_split_bytes", from);
    fill(stats.requested_bytes, "requested_bytes", from);
    stats.num_alloc_retries = value_in(from, "num_alloc_retries");
    stats.num_ooms = value_in(from, "num_ooms");
    stats.num_sync_all_streams = value_in(from, "num_sync_all_streams");
    stats.num_device_alloc = value_in(from, "num_device_alloc");
    stats.num_device_free = value_in(from, "num_device_free");
    stats.max_split_size = value_in(from, "max_split_size");
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    allocator_of(index).reset_accumulated_stats();
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    allocator_of(index).reset_peak_stats();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const MemoryInfo info = allocator_of(index).info();
    return {info.free, info.total};
  }
};

NpuAllocator allocator_;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator_)

}  // namespace

void empty_cache() {
  if (Capture::get().under_way()) return;  // as torch.cuda's: it would wait
  collect_graphs();
  for (int device = 0; device < device_count(); ++device)
    if (allocator_exists(device)) allocator(device).empty_cache();
  free_scratch();
  reset_replacement();
}

void report_memory() { reports_memory_.store(true, std::memory_order_relaxed); }

c10::Allocator* npu_allocator() { return &allocator_; }

CachingAllocator& allocator_of(int device) {
  check_device(device);
  return allocator(device);
}

[[gnu::hot]] c10::DataPtr allocate_bytes(size_t bytes, Stream& stream) {
  const c10::Device device = device_of(stream.device());
  if (bytes == 0) return c10::DataPtr(nullptr, device);
  uint64_t mempool = 0;
  if (pluggable_memory_in_use()) [[unlikely]] {
    c10::DataPtr data = allocate_elsewhere(bytes, stream, mempool);
    if (data.get()) return data;
  }
  OutOfMemory why;
  const auto allocated = [&] {
    return allocator(stream.device()).allocate(bytes, stream, why, mempool);
  };
  Block* block = allocated();
  if (!block) [[unlikely]] {
    const bool graphs = collect_graphs();
    if ((hooks.reclaim && hooks.reclaim()) || graphs) block = allocated();
  }
  if (!block) [[unlikely]] {
    if (reports_memory())
      c10::reportOutOfMemoryToProfiler(int64_t(bytes), why.allocated,
                                       why.reserved, device);
    if (hooks.out_of_memory)
      hooks.out_of_memory(why.device, why.asked, why.total, why.free);
    TORCH_CHECK_WITH(OutOfMemoryError, false, why.message());
  }
  if (reports_memory()) [[unlikely]]
    tell_profiler(block->ptr, int64_t(block->size), stream.device());
  return c10::DataPtr(block->ptr, block, &free_block, device);
}

void record_stream(const c10::DataPtr& data, Stream& stream) {
  if (!data.get()) return;
  if (data.get_deleter() != &free_block) return record_elsewhere(data, stream);
  Block* block = static_cast<Block*>(data.get_context());
  allocator(block->device).record_stream(block, stream);
}

void erase_stream(const c10::DataPtr& data, Stream& stream) {
  if (!data.get()) return;
  if (data.get_deleter() != &free_block) return erase_elsewhere(data, stream);
  Block* block = static_cast<Block*>(data.get_context());
  allocator(block->device).erase_stream(block, stream);
}

Stream* take_borrower(const c10::DataPtr& data) {
  if (!data.get() || data.get_deleter() != &free_block) return nullptr;
  Block* block = static_cast<Block*>(data.get_context());
  return allocator(block->device).take_use(block);
}

}  // namespace npu
