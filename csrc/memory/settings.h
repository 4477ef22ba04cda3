// What PYTORCH_NPU_ALLOC_CONF asks of the allocators, in numbers. Python reads
// the text (npu_dispatch/npu/runtime/alloc_conf.py).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace npu {

inline constexpr size_t kBytesPerMiB = size_t{1} << 20;

struct AllocatorSettings {
  // Larger blocks are not split, and serve no request that is smaller.
  size_t max_split_size = SIZE_MAX;  // bytes
  // A request above max_split_size is served from a block that is less than
  // this larger.
  size_t max_non_split_rounding = 20 * kBytesPerMiB;  // bytes
  // The fraction of a device's memory that set_per_process_memory_fraction()
  // sets, too. 0: not given.
  double memory_fraction = 0;
  // A fraction of the memory that this process may use. Above it, unused
  // segments go back to the driver before it is asked for new ones. 0: never.
  double gc_threshold = 0;
  // Into how many steps the sizes between a power of two and the next are
  // rounded up. Indexed by power of two; the first entry is for less than 2
  // MiB. 0 and 1: no such rounding.
  static constexpr size_t kPowers = 16;
  std::array<uint32_t, kPowers> roundup_divisions{};
  bool rounds = false;  // one of the divisions is more than 1
};

// The process's settings from now on. Throws std::invalid_argument where a
// number is none that the allocators can work with, and changes nothing.
void set_allocator_settings(const AllocatorSettings& settings);

namespace detail {
inline constexpr AllocatorSettings kDefaultSettings;
inline std::atomic<const AllocatorSettings*> settings{&kDefaultSettings};
}  // namespace detail

// Settings are never freed: another thread may be reading them.
inline const AllocatorSettings& allocator_settings() {
  // Acquire: pairs with the release of the thread that made them.
  return *detail::settings.load(std::memory_order_acquire);
}

// The size of the block for a request: a multiple of 512 bytes.
size_t block_bytes(size_t bytes, const AllocatorSettings& settings);

}  // namespace npu
