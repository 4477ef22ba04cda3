#include "csrc/distributed/work.h"

#include <c10/core/StreamGuard.h>

#include <map>

#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {

HcclWork::HcclWork(int rank, c10d::OpType type, CallName call, Points ends,
                   std::vector<at::Tensor> outputs, Waits waits,
                   std::shared_ptr<int> source)
    : Work(rank, type),
      call_(std::move(call)),
      ends_(std::move(ends)),
      outputs_(std::move(outputs)),
      waits_(waits),
      source_(std::move(source)) {}

bool HcclWork::is_over() const {
  for (const Point& end : ends_)
    if (!end.stream->retired().reached(end.number)) return false;
  return true;
}

bool HcclWork::isCompleted() {
  for (const Point& end : ends_) {
    forbid_query(*end.stream);
    if (!host_poll(*end.stream, end.number)) return false;
  }
  return true;
}

bool HcclWork::isSuccess() const {
  for (const Point& end : ends_)
    if (failed_before(end)) return false;
  return is_over();
}

std::exception_ptr HcclWork::exception() const {
  try {
    raise_if_failed();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

int HcclWork::sourceRank() const {
  TORCH_CHECK(source_, "hccl: only a recv from any rank has a source");
  return *source_;
}

// Other calls may have used the streams since, so their errors are not asked.
void HcclWork::raise_if_failed() const {
  for (const Point& end : ends_)
    if (const auto error = error_before(*end.stream, end.number))
      raise_error(*error);
}

void HcclWork::wait_on_stream() {
  raise_if_failed();
  for (const Point& end : ends_) {
    Stream& current = usable_stream(end.stream->device());
    npu::raise_if_failed(current);
    if (!current.wait_for(*end.stream, end.number)) raise_stream_error(current);
    // The launch has not blocked (engine/switches.h), so this does.
    if (!current.sink()) current.wait_where_launches_block(current.tail());
  }
}

void HcclWork::raise_late(const Point& end,
                          std::chrono::milliseconds waited) const {
  StreamError late{};
  late.code = NPU_OK;  // nothing has failed
  late.device = end.stream->device();
  late.stream = end.stream->id();
  late.task = end.number - 1;
  late.op = call_.op;
  late.text = call_.member->where() + ", " + (call_.op + sizeof "hccl:" - 1) +
              " #" + std::to_string(call_.seq) + ": wait() gave up after " +
              std::to_string(waited.count()) +
              " ms; the call goes on, and can be waited for again";
  late.site.site = call_.site;
  raise_error(late);
}

bool HcclWork::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout && waits_ == Waits::kStream) {
    wait_on_stream();
    return true;
  }
  // The host waits first: where launches block, a stream's wait has no limit.
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (const Point& end : ends_) {
    const bool done =
        host_wait_while(*end.stream, end.number, WaitReason::kStreamSync, [&] {
          return timeout == kNoTimeout ||
                 std::chrono::steady_clock::now() < until;
        });
    if (!done) raise_late(end, timeout);
  }
  wait_on_stream();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> HcclWork::getFuture() {
  if (future_) return future_;
  // One stream of each device, which waits for the others.
  std::map<int, Stream*> last;
  for (const Point& end : ends_) {
    Stream*& stream = last[end.stream->device()];
    if (!stream) stream = end.stream;
    if (stream != end.stream && !stream->wait_for(*end.stream, end.number))
      raise_stream_error(*stream);
  }
  std::vector<c10::Device> devices;
  std::vector<c10::Stream> streams;
  for (const auto& [device, stream] : last) {
    streams.push_back(to_torch(*stream));
    devices.push_back(streams.back().device());
  }
  future_ = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::move(devices));
  // It is complete already, as futures of device work are: whoever waits for it
  // makes a stream wait for what the guard's streams have been given.
  const c10::MultiStreamGuard guard(streams);
  future_->markCompleted(c10::IValue(outputs_));
  return future_;
}

}  // namespace npu
