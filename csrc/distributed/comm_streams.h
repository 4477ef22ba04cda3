// Streams whose launchers wait for the network. Each has one owner.
#pragma once

namespace npu {

class Stream;

// A stream of the device that nobody else queues on: two groups that shared a
// stream would wait for each other. Throws where all are taken.
Stream& take_comm_stream(int device);
// Gives the stream back. What is queued on it still comes before the work of
// the next owner.
void give_comm_stream(Stream& stream);

}  // namespace npu
