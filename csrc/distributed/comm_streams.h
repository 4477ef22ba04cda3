// Streams whose launchers wait for the network, one owner each.
#pragma once

namespace npu {

class Stream;

// A stream of the device that nobody else queues on: two groups that shared one
// would wait for each other. Throws where all are taken.
Stream& take_comm_stream(int device);
// Gives it back; what is queued on it stays in order before the next owner's.
void give_comm_stream(Stream& stream);

}  // namespace npu
