// torch's device and stream guards, streams and events, over the engine.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/graph/capture.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

Event& event_of(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return at(exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return at(current_device()); }
  void setDevice(c10::Device device) const override {
    exchange_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() < device_count()) exchange_device(device.index());
  }
  // 0 where the driver cannot be used; calls that need a device say why.
  c10::DeviceIndex deviceCount() const noexcept override try {
    return c10::DeviceIndex(npu::device_count());
  } catch (const std::exception&) {
    return 0;
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    return c10::DeviceCapability();
  }

  // Autograd asks for streams where nothing may be thrown. A forked child has
  // no usable stream, so it gets the default one; a launch on it raises.
  c10::Stream getStream(c10::Device device) const override {
    if (in_bad_fork()) return getDefaultStream(device);
    return to_torch(usable_stream(device_or_current(device.index())));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT,
                       at(device_or_current(device.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device,
                                      bool high) const override {
    return getNewStream(device, high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const int index = device_or_current(device.index());
    check_usable(index);
    return to_torch(next_stream(
        index, priority < 0 ? StreamPool::kHigh : StreamPool::kNormal));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    if (in_bad_fork()) return getDefaultStream(stream.device());
    Stream& next = from_torch(stream);
    const c10::Stream previous = to_torch(current_stream(next.device()));
    set_current_stream(next);
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &from_torch(stream);
  }

  bool queryStream(const c10::Stream& stream) const override {
    return query(from_torch(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Stream& s = from_torch(stream);
    host_wait(s, s.tail(), WaitReason::kStreamSync);
    raise_if_failed(s);
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return from_torch(stream).sink() != nullptr;
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    synchronize(device_or_current(index));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "the event was recorded on npu:", int(device),
                " and cannot be recorded on npu:", int(stream.device_index()),
                "; make another event");
    Stream& s = from_torch(stream);
    if (!*event)
      *event = new Event(
          flag == c10::EventFlag::BACKEND_DEFAULT ? Timing::kOn : Timing::kOff);
    if (!event_of(*event).record(s)) raise_stream_error(s);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event || !event_of(event).recorded()) return;
    Event& e = event_of(event);
    Stream& s = from_torch(stream);
    if (!s.wait_for(*e.stream(), e.number())) raise_stream_error(s);
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    const Event& e = event_of(event);
    const bool done = e.done();
    if (e.recorded()) raise_if_failed(*e.stream());
    return done;
  }
  void synchronizeEvent(void* event) const override {
    if (!event || !event_of(event).recorded()) return;
    check_usable();
    event_of(event).synchronize();
    raise_if_failed(*event_of(event).stream());
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(
        begin && end && event_of(begin).recorded() && event_of(end).recorded(),
        "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(
        event_of(begin).timing() && event_of(end).timing(),
        "Both events must be created with argument 'enable_timing=True'.");
    synchronizeEvent(begin);
    synchronizeEvent(end);
    return (double(time_of(event_of(end))) - double(time_of(event_of(begin)))) /
           1e6;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override {
    record_stream(data, from_torch(stream));
  }

 private:
  static c10::Device at(int index) {
    return c10::Device(kNpu, c10::DeviceIndex(index));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

uint64_t time_of(const Event& event) {
  const uint64_t ns = event.time_ns();
  TORCH_CHECK(ns, "npu:", event.stream()->device(), " stream ",
              event.stream()->id(),
              " has not come to this event: it had failed before, or no replay "
              "has run the event; record it again");
  return ns;
}

bool query(Stream& stream) {
  forbid_query(stream);
  const bool idle = host_poll(stream, stream.tail());
  raise_if_failed(stream);
  return idle;
}

void synchronize(int device) {
  check_usable(device);
  if (!initialized()) return;
  synchronize_device(device, WaitReason::kDeviceSync);
  for (Stream* s : streams(device)) raise_if_failed(*s);
}

}  // namespace npu
