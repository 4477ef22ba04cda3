#include "csrc/distributed/work.h"

#include <c10/core/StreamGuard.h>

#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {

HcclWork::HcclWork(int rank, c10d::OpType type, uint64_t seq, Point end,
                   std::vector<at::Tensor> outputs, Waits waits,
                   std::shared_ptr<int> source)
    : Work(rank, type),
      seq_(seq),
      end_(end),
      outputs_(std::move(outputs)),
      waits_(waits),
      source_(std::move(source)) {}

bool HcclWork::isCompleted() {
  forbid_query(*end_.stream);
  return host_poll(*end_.stream, end_.number);
}

bool HcclWork::isSuccess() const {
  return end_.stream->retired().reached(end_.number) && !end_.stream->failed();
}

std::exception_ptr HcclWork::exception() const {
  try {
    raise_if_failed(*end_.stream);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

int HcclWork::sourceRank() const {
  TORCH_CHECK(source_, "hccl: only a recv from any rank has a source");
  return *source_;
}

void HcclWork::wait_on_stream() {
  Stream& current = usable_stream(end_.stream->device());
  raise_if_failed(*end_.stream);
  if (!current.wait_for(*end_.stream, end_.number)) raise_stream_error(current);
}

bool HcclWork::wait(std::chrono::milliseconds timeout) {
  wait_on_stream();
  if (timeout == kNoTimeout && waits_ == Waits::kStream) return true;
  const auto end = std::chrono::steady_clock::now() + timeout;
  const bool done =
      host_wait_while(*end_.stream, end_.number, WaitReason::kStreamSync, [&] {
        return timeout == kNoTimeout || std::chrono::steady_clock::now() < end;
      });
  raise_if_failed(*end_.stream);
  TORCH_CHECK_WITH(DistBackendError, done,
                   "hccl: the collective is not done "
                   "after ",
                   timeout.count(), " ms");
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> HcclWork::getFuture() {
  if (future_) return future_;
  const c10::Device device(kNpu, c10::DeviceIndex(end_.stream->device()));
  future_ = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector{device});
  // It is complete already, as futures of device work are: whoever waits for it
  // makes a stream wait for what the guard's stream has been given.
  const c10::StreamGuard guard(to_torch(*end_.stream));
  future_->markCompleted(c10::IValue(outputs_));
  return future_;
}

}  // namespace npu
