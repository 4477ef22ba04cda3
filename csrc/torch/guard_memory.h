// Memory that notices what is written beside it: the allocator of
// PYTORCH_NPU_ALLOC_CONF=backend:guard.
#pragma once

namespace npu {

// All device memory has a margin on both sides from now on. To be called before
// any is used; does nothing the second time.
void guard_memory();
bool memory_guarded();

}  // namespace npu
