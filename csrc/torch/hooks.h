// Registration of the accelerator hooks.
#pragma once

namespace npu {

// Once per process, from the extension's initialisation.
void register_hooks();

}  // namespace npu
