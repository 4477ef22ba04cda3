#include "csrc/distributed/noted_call.h"

namespace npu {

NotedCall::NotedCall(const CollectiveCall& call,
                     const std::vector<at::Tensor>& reads,
                     const std::vector<at::Tensor>& writes,
                     const std::vector<int>& peers)
    : call_(call) {
  for (const at::Tensor& t : reads.empty() ? writes : reads)
    call_.bytes += t.nbytes();
  if (!peers.empty()) {
    add(reads, false, peers.data());
    add(writes, true, peers.data() + reads.size());
    return;
  }
  // A call in place reads what it writes.
  add(reads.empty() ? writes : reads, false, nullptr);
  add(writes.empty() ? reads : writes, true, nullptr);
}

void NotedCall::add(const std::vector<at::Tensor>& list, bool output,
                    const int* peers) {
  for (size_t i = 0; i < list.size() && call_.count < shapes_.size(); ++i)
    shapes_[call_.count++] = {list[i].sizes().data(), list[i].sizes().size(),
                              uint8_t(list[i].scalar_type()), output,
                              peers ? peers[i] : -1};
}

void NotedCall::keep() {
  for (size_t i = 0; i < call_.count; ++i)
    kept_.insert(kept_.end(), shapes_[i].sizes,
                 shapes_[i].sizes + shapes_[i].dimensions);
  const int64_t* at = kept_.data();
  for (size_t i = 0; i < call_.count; ++i) {
    shapes_[i].sizes = at;
    at += shapes_[i].dimensions;
  }
}

LoggedCollective NotedCall::log(uint64_t seq, uint64_t now) {
  call_.seq = seq;
  call_.now = now;
  call_.tensors = shapes_.data();
  return log_collective(call_);
}

}  // namespace npu
