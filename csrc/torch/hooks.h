// Registers the accelerator's hooks.
#pragma once

namespace npu {

// Called once per process, when the extension is initialised.
void register_hooks();

}  // namespace npu
