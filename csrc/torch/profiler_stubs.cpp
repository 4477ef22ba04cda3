// torch's own way to time operators of a device: an event before and one behind
// each operator, on the current stream. torch.autograd.profiler.profile() uses
// it with use_device="npu", and so do tools that only want markers of
// operators.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/standalone/privateuse1_observer.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <torch/csrc/profiler/util.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/observe/trace.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kineto.h"

namespace npu {
namespace {

namespace profiler = torch::profiler::impl;

// Ranges are numbered from here on; those of Python's markers begin at 1.
constexpr uint64_t kFirstRange = uint64_t{1} << 48;

// Open ranges of this thread: number and name.
struct OpenRange {
  uint64_t number;
  uint32_t name;
};
struct OpenRanges {
  std::vector<OpenRange> list;
};
std::vector<OpenRange>& open_ranges() {
  return PerThread<OpenRanges>::get().list;
}

void note(const OpenRange& range, uint8_t kind) {
  static const uint32_t domain = trace_text("profiler");
  trace_mark({range.number, range.name, domain, kind, -1, gettid()});
}

OpenRange make_range(const char* name) {
  static std::atomic<uint64_t> next{kFirstRange};
  // Relaxed: the counter only gives out numbers.
  return {next.fetch_add(1, std::memory_order_relaxed), trace_text(name)};
}

// Whether the range was noted; its number is 0 where nobody traced when it
// opened.
bool is_noted(const OpenRange& range) { return range.number != 0; }

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

  // Markers go to the trace, while somebody traces this process.
  void mark(const char* name) const override {
    if (trace_wanted()) note(make_range(name), kMarkPoint);
  }
  void rangePush(const char* name) const override {
    open_ranges().push_back(trace_wanted() ? make_range(name)
                                           : OpenRange{0, 0});
    if (is_noted(open_ranges().back())) note(open_ranges().back(), kMarkBegin);
  }
  void rangePop() const override {
    if (open_ranges().empty()) return;
    if (is_noted(open_ranges().back())) note(open_ranges().back(), kMarkEnd);
    open_ranges().pop_back();
  }

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

// For ProfilerState::PRIVATEUSE1: each operator becomes a range, and nothing
// else is kept.
class MarkersOnly final : public profiler::ProfilerStateBase {
 public:
  explicit MarkersOnly(const profiler::ProfilerConfig& config)
      : ProfilerStateBase(config) {}
  profiler::ActiveProfilerType profilerType() override {
    return profiler::ActiveProfilerType::PRIVATEUSE1;
  }
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {
  }
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  profiler::privateuse1Stubs()->rangePush(function.name());
  return nullptr;
}
void leave(const at::RecordFunction&, at::ObserverContext*) {
  profiler::privateuse1Stubs()->rangePop();
}

void mark_operators(const profiler::ProfilerConfig& config,
                    const std::unordered_set<at::RecordScope>& scopes) {
  auto state = std::make_shared<MarkersOnly>(config);
  state->setCallbackHandle(at::addThreadLocalCallback(
      at::RecordFunctionCallback(&enter, &leave).scopes(scopes)));
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, state);
}

}  // namespace

void register_profiler_stubs() {
  static Stubs stubs;
  profiler::registerPrivateUse1Methods(&stubs);
  profiler::pushPRIVATEUSE1CallbacksStub.set_privateuse1_dispatch_ptr(
      &mark_operators);
}

}  // namespace npu
