// DDP asks when the parts of a step began and ended: its logging data.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "csrc/torch/device.h"

namespace npu {
namespace {

// Records an event of the current stream. Of a few steps in a hundred, so what
// that takes does not matter.
class StepTimer final : public c10d::Timer {
 public:
  explicit StepTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);  // the host's time
    std::optional<c10::Event>& at = events_[size_t(event)];
    at.emplace(kNpu, c10::EventFlag::BACKEND_DEFAULT);
    at->record(c10::impl::VirtualGuardImpl(kNpu).getStream(device_));
  }

  // Waits for both, as on CUDA. DDP asks in one step of a hundred.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<c10::Event>&from = events_[size_t(start)],
          &to = events_[size_t(end)];
    if (!from || !to) return std::nullopt;
    from->synchronize();
    to->synchronize();
    constexpr double kNsPerMs = 1e6;
    const double ns = from->elapsedTime(*to) * kNsPerMs;
    // A step without communication has an end of an earlier one.
    if (ns < 0) return std::nullopt;
    return int64_t(ns);
  }

 private:
  const c10::Device device_;
  std::array<std::optional<c10::Event>, size_t(Event::kBackwardCommEnd) + 1>
      events_;
};

}  // namespace
}  // namespace npu

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, npu::StepTimer);
}  // namespace c10d
