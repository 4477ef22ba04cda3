// torch.profiler's ProfilerActivity.PrivateUse1.
#pragma once

namespace npu {

// Makes torch.profiler ask us for what ran on the device. Once; starts nothing.
void register_profiler();

}  // namespace npu
