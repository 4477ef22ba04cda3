#include "csrc/distributed/profiled_call.h"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

namespace npu {
namespace {

int64_t elements(const std::vector<at::Tensor>& tensors) {
  int64_t total = 0;
  for (const at::Tensor& t : tensors) total += t.numel();
  return total;
}

// The distance between the group's ranks of the job; 0: they have no one.
int stride(const std::vector<int>& ranks) {
  const int first = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != first) return 0;
  return first;
}

}  // namespace

ProfiledCall::ProfiledCall(const GroupNames& group, const Agreement& agreed,
                           const std::vector<at::Tensor>& reads,
                           const std::vector<at::Tensor>& writes, bool async,
                           bool message) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) [[likely]]
    return;
  // A call in place reads what it writes.
  const bool in_place = reads.empty() && !message;
  const auto type = agreed.dtype < 0 ? at::kByte : at::ScalarType(agreed.dtype);
  const auto about = std::make_shared<torch::ParamCommsDebugInfo>(
      std::tuple(group.name, group.description), group.rank,
      std::string(agreed.name), elements(in_place ? writes : reads),
      elements(writes), type, std::vector<int64_t>{}, std::vector<int64_t>{},
      group.global.empty() ? 0 : group.global[0], stride(group.global),
      int(group.global.size()), async);
  about->setSequenceInfo(int64_t(agreed.seq), message);
  info_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, about);
  record_.emplace(std::move(*callbacks));
  if (record_->needsInputs()) {
    const c10::IValue input(in_place ? writes : reads);
    record_->before(at::kParamCommsCallName,
                    c10::ArrayRef<const c10::IValue>(&input, 1));
  } else {
    record_->before(at::kParamCommsCallName);
  }
}

}  // namespace npu
