// What torch.profiler is told of a call: the operator that tools for traces of
// several ranks look for.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <vector>

#include "csrc/distributed/transport.h"

namespace npu {

struct GroupNames {
  const std::string& name;
  const std::string& description;
  int rank;
  const std::vector<int>& global;  // by rank, what the job calls them
};

// The operator lasts as long as this object. Without a profiler it is nothing.
class ProfiledCall {
 public:
  ProfiledCall(const GroupNames& group, const Agreement& agreed,
               const std::vector<at::Tensor>& reads,
               const std::vector<at::Tensor>& writes, bool async, bool message);
  ProfiledCall(const ProfiledCall&) = delete;

 private:
  std::optional<c10::DebugInfoGuard> info_;
  std::optional<at::RecordFunction> record_;
};

}  // namespace npu
