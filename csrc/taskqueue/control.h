// What an administrator's process asks of this one, through ControlBlock.
#pragma once

namespace npu {

// Does what has been asked since the last call, if anything. Launchers, once
// per sampled task; never waits.
void obey_control();

}  // namespace npu
