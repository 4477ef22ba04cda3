// Tells the race sanitizer what operators of the host's threads do to host
// memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "csrc/sanitizer/sanitizer.h"

namespace npu {

// From now on that sanitizer, or where it is null nobody, is told; returns the
// previous one. A sanitizer that was given here is never destroyed: another
// thread may be inside one of its calls.
Sanitizer* watch_host_ops(Sanitizer* sanitizer);
Sanitizer* host_ops_sanitizer();

// Watches the calling thread's operators from here on, until no copy to or from
// pinned memory is under way.
void watch_thread();
// The same for good, for a thread that may use the memory of copies which other
// threads queue.
void watch_thread_for_good();

// `by` uses a tensor's memory without an operator, as numpy and lists do.
void sanitizer_host_uses(const at::Tensor& t, const char* by, bool writes);

// The program has an array or a pointer of the tensor's memory.
void sanitizer_host_escapes(const at::Tensor& t);

// A queued function is about to use the host tensors among these.
void lend_to_sanitizer(const std::vector<at::Tensor>& tensors);

}  // namespace npu
