#include "csrc/torch/guard_memory.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "csrc/driver/driver.h"
#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/pluggable_memory.h"

namespace npu {
namespace {

// The margin on each side, in bytes: what a vector instruction writes too much,
// or a row. A multiple of the alignment of blocks.
constexpr size_t kMargin = 512;
constexpr unsigned char kWord = 0xA5;

// Nothing queued uses the block: the one before was given back in the order of
// its streams. So the host may write to it.
void* allocate_guarded(size_t bytes, int device, void* stream) {
  const auto id = int64_t(uint32_t(reinterpret_cast<uintptr_t>(stream)));
  OutOfMemory why;
  Block* block = allocator(device).allocate(bytes + 2 * kMargin,
                                            *find_stream(device, id), why);
  TORCH_CHECK_WITH(OutOfMemoryError, block, why.message());
  auto* const begin = static_cast<unsigned char*>(block->ptr);
  HostAccess access;
  memset(begin, kWord, kMargin);
  memset(begin + kMargin + bytes, kWord, kMargin);
  return begin + kMargin;
}

void free_guarded(void* ptr, size_t, int device, void*) {
  CachingAllocator& from = allocator(device);
  from.free(from.find(static_cast<char*>(ptr) - kMargin));
}

// The first byte of a margin that was written, or its end.
const unsigned char* written(const unsigned char* margin) {
  return std::find_if(margin, margin + kMargin,
                      [](unsigned char byte) { return byte != kWord; });
}

int check_margins(const void* ptr, size_t bytes, npu_failure* failure) {
  const auto* const begin = static_cast<const unsigned char*>(ptr);
  HostAccess access;
  const unsigned char* const before = written(begin - kMargin);
  const unsigned char* const behind = written(begin + bytes);
  if (before == begin && behind == begin + bytes + kMargin) return NPU_OK;
  failure->code = NPU_ERROR;
  if (before != begin)
    snprintf(failure->text, sizeof failure->text,
             "something wrote before the beginning of this memory of %zu "
             "bytes, %zu bytes before it: a kernel has a wrong index",
             bytes, size_t(begin - before));
  else
    snprintf(failure->text, sizeof failure->text,
             "something wrote behind the end of this memory of %zu bytes, at "
             "byte %zu: a kernel has a wrong index",
             bytes, size_t(behind - begin));
  return NPU_ERROR;
}

const PluggedAllocator kGuard{
    .alloc = &allocate_guarded, .free = &free_guarded, .check = &check_margins};

}  // namespace

void guard_memory() {
  if (!memory_guarded()) replace_allocator(&kGuard);
}

bool memory_guarded() { return replaced_by(&kGuard); }

}  // namespace npu
