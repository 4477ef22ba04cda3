#include "csrc/torch/device.h"

#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

thread_local int device_ = 0;

}  // namespace

int current_device() { return device_; }

int exchange_device(int device) {
  if (device != device_) check_device(device);
  const int previous = device_;
  device_ = device;
  return previous;
}

c10::Stream to_torch(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(kNpu, c10::DeviceIndex(stream.device())),
                     stream.id());
}

Stream& from_torch(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kNpu,
              "expected an npu stream, got one of ", stream.device());
  return stream_at(stream.device_index(), stream.id());
}

Stream& stream_at(int device, int64_t id) {
  check_usable(device);
  Stream* found = find_stream(device, id);
  TORCH_CHECK(found, "npu:", device, " has no stream ", id);
  return *found;
}

Stream& usable_stream(int device) {
  check_usable(device);
  return current_stream(device);
}

}  // namespace npu
