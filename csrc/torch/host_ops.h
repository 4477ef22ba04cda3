// What the calling threads' own operators do to host memory, told to the race
// sanitizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "csrc/sanitizer/sanitizer.h"

namespace npu {

// Whom they are told to from now on, or nobody; returns who was told before.
// A sanitizer that was given here is never destroyed: another thread may be
// inside one of its calls.
Sanitizer* watch_host_ops(Sanitizer* sanitizer);
Sanitizer* host_ops_sanitizer();

// From here on the calling thread's operators are looked at, until no copy to
// or from pinned memory is under way.
void watch_thread();
// The same for good: others queue the copies whose memory this thread may use.
void watch_thread_for_good();

// `by` uses a tensor's memory without an operator, as numpy and lists do.
void sanitizer_host_uses(const at::Tensor& t, const char* by, bool writes);

// Host tensors among these are about to be used by a queued function.
void lend_to_sanitizer(const std::vector<at::Tensor>& tensors);

}  // namespace npu
