// Gives Kineto, torch's profiler, what ran on the device: a slice for each
// kernel on the row of its stream, linked to the operator that launched it, and
// a slice for each launch on the row of its thread, with an arrow between the
// two.
#include "csrc/torch/kineto.h"

#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/profiling.h"
#include "csrc/observe/work_names.h"

namespace npu {
namespace {

using libkineto::ActivityLogger;
using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

const std::string kName = "npu";

// Launches are numbered from here on: torch numbers its operators from 1, and
// takes equal numbers for the same thing.
constexpr int32_t kFirstLaunch = 1 << 30;

struct Moment {
  uint64_t ticks;
  int64_t unix_ns;
};

Moment now() {
  const auto both = read_both(ticks, unix_ns);
  return {both.outer, int64_t(both.inner)};
}

struct Timeline {
  Moment begin, end;

  int64_t at(uint64_t when) const {
    // The rate over the whole profile is the better one, unless the profile is
    // short.
    double rate = ns_per_tick();
    if (end.unix_ns - begin.unix_ns > 100'000'000)
      rate =
          double(end.unix_ns - begin.unix_ns) / double(end.ticks - begin.ticks);
    return begin.unix_ns + int64_t(double(int64_t(when - begin.ticks)) * rate);
  }
};

ActivityType type_of(const char* name) {
  return is_copy(name) ? ActivityType::GPU_MEMCPY
                       : ActivityType::CONCURRENT_KERNEL;
}

std::string title_of(const char* name) {
  switch (work_of(name)) {
    case Work::kHostToDevice:
      return "Memcpy HtoD";
    case Work::kDeviceToHost:
      return "Memcpy DtoH";
    case Work::kOnDevice:
      return "Memcpy DtoD";
    default:
      return name;
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(const std::set<ActivityType>& wanted) : wanted_(wanted) {
    status_ = libkineto::TraceStatus::READY;
  }

  void start() override {
    time_.begin = now();
    status_ = libkineto::TraceStatus::RECORDING;
    start_profile();
  }
  void stop() override {
    runs_ = stop_profile();
    time_.end = now();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  // Called for operators and the user's ranges, on the thread that enters and
  // leaves them.
  void pushCorrelationId(uint64_t id) override {
    enter_scope(Scope::kOperator, id);
  }
  void popCorrelationId() override { leave_scope(Scope::kOperator); }
  void pushUserCorrelationId(uint64_t id) override {
    enter_scope(Scope::kRange, id);
  }
  void popUserCorrelationId() override { leave_scope(Scope::kRange); }

  void processTrace(ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, INT64_MIN, INT64_MAX);
  }
  void processTrace(ActivityLogger& logger,
                    libkineto::getLinkedActivityCallback operator_of,
                    int64_t begin, int64_t end) override;

  // This could name only one device; processTrace() names all of them.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr;
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  GenericTraceActivity& make(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    return *buffer_->activities.back();
  }
  void log(ActivityLogger& logger, const GenericTraceActivity& activity) {
    if (wanted_.count(activity.activityType)) logger.handleActivity(activity);
  }
  void tell_rows(ActivityLogger& logger);

  const std::set<ActivityType> wanted_;
  Timeline time_{};
  std::vector<ProfiledRun> runs_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

void Session::tell_rows(ActivityLogger& logger) {
  std::map<int, std::set<int64_t>> rows;
  for (const ProfiledRun& run : runs_) rows[run.device].insert(run.stream);
  for (const auto& [device, of_device] : rows) {
    const int64_t below_cpu = libkineto::kExceedMaxPid + device;
    logger.handleDeviceInfo(
        {device, below_cpu, libkineto::processName(libkineto::processId()),
         "NPU " + std::to_string(device)},
        time_.begin.unix_ns);
    for (const int64_t stream : of_device)
      logger.handleResourceInfo(
          {stream, stream, device, "stream " + std::to_string(stream)},
          time_.begin.unix_ns);
  }
}

void Session::processTrace(ActivityLogger& logger,
                           libkineto::getLinkedActivityCallback operator_of,
                           int64_t begin, int64_t end) {
  buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  buffer_->span =
      libkineto::TraceSpan(time_.begin.unix_ns, time_.end.unix_ns, kName);
  buffer_->gpuOpCount = int(runs_.size());
  tell_rows(logger);
  std::stable_sort(runs_.begin(), runs_.end(),
                   [](const ProfiledRun& a, const ProfiledRun& b) {
                     return a.started < b.started;
                   });
  // The replay of a graph is one launch with many runs.
  std::map<std::tuple<int, int64_t, uint64_t>, int32_t> launches;
  // When the first run of a range began, and the last one ended.
  std::map<std::tuple<int, int64_t, uint64_t>, std::pair<int64_t, int64_t>>
      ranges;
  int32_t next = kFirstLaunch;
  for (const ProfiledRun& run : runs_) {
    const int64_t started = time_.at(run.started), ended = time_.at(run.ended);
    if (ended < begin || started > end) continue;
    const libkineto::ITraceActivity* by =
        run.launch.op ? operator_of(int32_t(run.launch.op)) : nullptr;
    int32_t number = next;
    const bool was_launched = run.launch.thread != 0;
    if (was_launched) {
      const auto [at, first] = launches.try_emplace(
          {run.device, run.stream, run.launch.position}, next);
      number = at->second;
      if (first) {
        ++next;
        GenericTraceActivity& launch =
            make(ActivityType::PRIVATEUSE1_RUNTIME, "npuLaunch");
        launch.startTime = time_.at(run.launch.begun);
        launch.endTime = time_.at(run.launch.ended);
        launch.id = number;
        launch.device = libkineto::processId();
        launch.resource = launch.threadId = run.launch.thread;
        launch.linked = by;
        launch.flow.id = uint32_t(number);
        launch.flow.type = libkineto::kLinkAsyncCpuGpu;
        launch.flow.start = 1;
        launch.addMetadata("correlation", number);
        log(logger, launch);
      }
    } else {
      ++next;
    }
    GenericTraceActivity& kernel = make(type_of(run.name), title_of(run.name));
    kernel.startTime = started;
    kernel.endTime = ended;
    kernel.id = number;
    kernel.device = run.device;
    kernel.resource = int32_t(run.stream);
    kernel.threadId = run.launch.thread;
    kernel.linked = by;
    if (was_launched) {
      kernel.flow.id = uint32_t(number);
      kernel.flow.type = libkineto::kLinkAsyncCpuGpu;
    }
    kernel.addMetadata("device", run.device);
    kernel.addMetadata("stream", run.stream);
    kernel.addMetadata("correlation", number);
    if (was_launched)
      kernel.addMetadata(
          "queued ns",
          std::max<int64_t>(0, started - time_.at(run.launch.begun)));
    log(logger, kernel);
    if (!run.launch.range) continue;
    auto& [_, last] =
        ranges
            .try_emplace({run.device, run.stream, run.launch.range}, started,
                         ended)
            .first->second;
    last = std::max(last, ended);
  }
  for (const auto& [key, extent] : ranges) {
    const auto [device, stream, id] = key;
    const libkineto::ITraceActivity* range = operator_of(int32_t(id));
    if (!range) continue;
    GenericTraceActivity& on_device =
        make(ActivityType::GPU_USER_ANNOTATION, range->name());
    on_device.startTime = extent.first;
    on_device.endTime = extent.second;
    on_device.device = device;
    on_device.resource = int32_t(stream);
    // It is not linked to the range: a linked activity would count as device
    // time of the range.
    on_device.id = int32_t(id);
    log(logger, on_device);
  }
  runs_.clear();
}

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return kName; }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{
        ActivityType::GPU_MEMCPY, ActivityType::CONCURRENT_KERNEL,
        ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
    return types;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted, const libkineto::Config&) override {
    for (const ActivityType type : availableActivities())
      if (wanted.count(type)) return std::make_unique<Session>(wanted);
    return nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& wanted,
      const libkineto::Config& config) override {
    return configure(wanted, config);
  }
};

}  // namespace

void register_profiler() {
  auto& registry =
      torch::profiler::impl::PrivateUse1ProfilerRegistry::instance();
  if (!registry.hasFactory())
    registry.registerFactory([] { return std::make_unique<Profiler>(); });
}

}  // namespace npu
