// The calling thread's device, and torch's names for streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace npu {

class Event;
class Stream;

inline constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;

int current_device();
// Throws for an index out of range. Returns the previous device.
int exchange_device(int device);

c10::Stream to_torch(const Stream& stream);

// These throw when there is no such stream.
Stream& from_torch(const c10::Stream& stream);
Stream& stream_at(int device, int64_t id);

// Waits for all streams of a device; throws the pending error of any of them.
void synchronize(int device);

// When the device came to an event that has timing and is done, in ns of
// CLOCK_MONOTONIC. Throws where it never came there.
uint64_t time_of(const Event& event);

// Whether a stream has nothing left to do; throws its pending error.
bool query(Stream& stream);

// The calling thread's stream on a device. Throws where device work is
// impossible (bad index, forked child).
Stream& usable_stream(int device);

// `index`, or the current device when it is negative.
inline int device_or_current(int index) {
  return index < 0 ? current_device() : index;
}

}  // namespace npu
