// Device memory as torch sees it: c10::DataPtr over the caching allocator.
#pragma once

#include <c10/core/Allocator.h>

#include "csrc/memory/caching_allocator.h"

namespace npu {

class Stream;

// `bytes` of memory ordered on `stream`; a null pointer for 0 bytes. Throws
// torch.OutOfMemoryError.
c10::DataPtr allocate_bytes(size_t bytes, Stream& stream);

// Keeps the memory from reuse until what is now queued on `stream` is done.
void record_stream(const c10::DataPtr& data, Stream& stream);

// Undoes record_stream() for that stream.
void erase_stream(const c10::DataPtr& data, Stream& stream);

// Undoes record_stream() for one stream and returns it; null where there is
// none. For memory that is used again without having been freed.
Stream* take_borrower(const c10::DataPtr& data);

c10::Allocator* npu_allocator();

// The engine's allocator of a device. Throws for an index out of range.
CachingAllocator& allocator_of(int device);

// From now on torch's profiler is told of device memory where it wants to know
// (profile_memory=True). Called when the first profile begins: asking at each
// allocation whether one is on would cost a tenth of an allocation.
void report_memory();

// Gives unused memory of all devices back to the driver. Throws within a
// capture; may wait.
void empty_cache();

// Pinned host memory: torch's caching host allocator over ours.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
// Keeps a pinned block from reuse until what is now queued on `stream` is done.
void record_pinned(const c10::DataPtr& data, Stream& stream);

}  // namespace npu
