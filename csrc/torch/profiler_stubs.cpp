// torch's own way to time operators of a device: an event before and one behind
// each operator, on the current stream. torch.autograd.profiler.profile() uses
// it with use_device="npu".
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/standalone/privateuse1_observer.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <algorithm>
#include <memory>

#include "csrc/engine/engine.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kineto.h"

namespace npu {
namespace {

namespace profiler = torch::profiler::impl;

const Event& event_of(const profiler::ProfilerVoidEventStub& event) {
  return *static_cast<const Event*>(event.get());
}

class Stubs final : public profiler::ProfilerStubs {
 public:
  // Leaves no event where there cannot be one: in a forked child, on a stream
  // that has failed, and on one that captures, where it would become part of
  // the graph. torch takes a missing event for an operator without time on the
  // device.
  void record(c10::DeviceIndex* device, profiler::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    event->reset();
    if (device) *device = c10::DeviceIndex(current_device());
    if (cpu_ns) *cpu_ns = c10::getTime();
    if (in_bad_fork()) return;
    Stream& stream = usable_stream(current_device());
    if (stream.sink()) return;
    auto made = std::make_shared<Event>(Timing::kOn);
    if (made->record(stream)) *event = std::move(made);
  }

  // Microseconds, as for CUDA's events. At least one where there was a task in
  // between: torch lists an operator of zero time apart from others of its
  // name, and a device that reports several ends at once may measure zero.
  float elapsed(const profiler::ProfilerVoidEventStub* begin,
                const profiler::ProfilerVoidEventStub* end) const override {
    const Event &from = event_of(*begin), &to = event_of(*end);
    from.synchronize();
    to.synchronize();
    const float us =
        float(double(int64_t(to.time_ns() - from.time_ns())) / 1e3);
    const bool worked =
        from.stream() == to.stream() && to.number() > from.number() + 1;
    return worked ? std::max(us, 1.0f) : us;
  }

  // Called for ProfilerState::PRIVATEUSE1 alone, which is refused.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> act) const override {
    const int before = current_device();
    for (int device = 0; device < device_count(); ++device) {
      exchange_device(device);
      act(device);
    }
    exchange_device(before);
  }
  void synchronize() const override { npu::synchronize(current_device()); }
};

}  // namespace

void register_profiler_stubs() {
  static Stubs stubs;
  profiler::registerPrivateUse1Methods(&stubs);
  // torch calls this without asking whether there is one.
  profiler::pushPRIVATEUSE1CallbacksStub.set_privateuse1_dispatch_ptr(
      [](const auto&, const auto&) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, "npu has no marks of operators (ProfilerState.PRIVATEUSE1)",
            "; use torch.profiler.profile()");
      });
}

}  // namespace npu
