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
  check_usable(stream.device_index());
  Stream* found = find_stream(stream.device_index(), stream.id());
  TORCH_CHECK(found, "npu:", int(stream.device_index()), " has no stream ",
              stream.id());
  return *found;
}

Stream& usable_stream(int device) {
  check_usable(device);
  return current_stream(device);
}

}  // namespace npu
