// What PYTORCH_NPU_ALLOC_CONF asks of the allocators.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace npu {

inline constexpr size_t kBytesPerMiB = size_t{1} << 20;

struct AllocatorSettings {
  // Larger blocks are not split, and serve no request that is smaller.
  size_t max_split_size = SIZE_MAX;  // bytes
  // A request above max_split_size is served from a block that is less than
  // this larger.
  size_t max_non_split_rounding = size_t{20} << 20;  // bytes
  // The fraction of a device's memory that set_per_process_memory_fraction()
  // sets, too. 0: not given.
  double memory_fraction = 0;
  // A fraction of the memory that this process may use. Above it, unused
  // segments go back to the driver before it is asked for new ones. 0: never.
  double gc_threshold = 0;
  // Read but without effect: the driver's memory does not run out of contiguous
  // addresses.
  bool expandable_segments = false;
  // Memory has margins that nobody may write to (torch/guard_memory.h).
  bool guard = false;
  // Into how many steps the sizes between a power of two and the next are
  // rounded up. Indexed by power of two; the first entry is for less than 2
  // MiB. 0 and 1: no such rounding.
  static constexpr size_t kPowers = 16;
  std::array<uint32_t, kPowers> roundup_divisions{};
  bool rounds = false;  // one of the divisions is more than 1
  // Keys that torch or torch_npu know and that change nothing here.
  std::vector<std::string> without_effect;
  std::string text;
};

// Reads "key:value,key:value". Throws std::runtime_error that names the part
// which is wrong and what would be right.
AllocatorSettings parse_allocator_settings(const std::string& text);

// The settings of the process: those of the environment until
// set_allocator_settings(), which holds for what is allocated from then on. The
// first call throws as parse_allocator_settings() does. Keys without effect are
// named on stderr, each once.
const AllocatorSettings& read_allocator_settings();
void set_allocator_settings(const std::string& text);

// Valid once an allocator exists. Settings are never freed.
extern std::atomic<const AllocatorSettings*> current_allocator_settings;
inline const AllocatorSettings& allocator_settings() {
  // Acquire: pairs with the release of the thread that made them.
  return *current_allocator_settings.load(std::memory_order_acquire);
}

// The size of the block for a request: a multiple of 512 bytes.
size_t block_bytes(size_t bytes, const AllocatorSettings& settings);

}  // namespace npu
