// torch.profiler's ProfilerActivity.PrivateUse1.
#pragma once

namespace npu {

// Makes torch.profiler ask for what ran on the device. Called once; starts
// nothing.
void register_profiler();

// The same for torch's older way to time a device (profiler_stubs.cpp).
void register_profiler_stubs();

}  // namespace npu
