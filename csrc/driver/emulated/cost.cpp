#include "csrc/driver/emulated/cost.h"

#include <algorithm>

namespace npu {

namespace {

double reached_by(Arithmetic arithmetic, const EmulatedSpec& spec) {
  switch (arithmetic) {
    case Arithmetic::kConvolution:
      return spec.convolution;
    case Arithmetic::kDepthwise:
      return spec.depthwise;
    case Arithmetic::kAttention:
      return spec.attention;
    case Arithmetic::kRecurrence:
      return spec.recurrent;
    case Arithmetic::kProducts:
      break;
  }
  return 1;
}

double reached_by(Traffic traffic, const EmulatedSpec& spec) {
  switch (traffic) {
    case Traffic::kFunction:
      return spec.function;
    case Traffic::kReduction:
      return spec.reduction;
    case Traffic::kGather:
      return spec.gather;
    case Traffic::kStream:
      break;
  }
  return 1;
}

}  // namespace

TaskCost cost_of(const EmulatedSpec& spec, const TaskWork& work) {
  using Engine = DeviceModel::Engine;
  switch (work.kind) {
    case WorkKind::kCopy:
      return {Engine::kCopy, uint64_t(spec.copy_ns),
              uint64_t(work.bytes / spec.link)};
    case WorkKind::kSleep:
      return {Engine::kCompute, work.sleep_ns, 0};
    case WorkKind::kKernel:
      break;
  }
  const double reached = reached_by(work.arithmetic, spec);
  const double rate =
      work.bytes <= spec.cache ? spec.cache_bandwidth : spec.bandwidth;
  const double ns =
      std::max(work.flops / (spec.flops_of(work.itemsize) * reached),
               work.bytes / (rate * reached_by(work.traffic, spec)));
  return {
      Engine::kCompute,
      uint64_t(spec.kernel_ns) + uint64_t(work.steps) * uint64_t(spec.step_ns),
      uint64_t(ns)};
}

}  // namespace npu
