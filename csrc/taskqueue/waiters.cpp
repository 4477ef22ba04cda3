#include "csrc/taskqueue/waiters.h"

#include "csrc/taskqueue/stream.h"

namespace npu {

template class BasicWaiters<System>;
template void Waiters::retired(Stream&, uint64_t);

std::unique_ptr<StreamError> error_before(const Stream& stream,
                                          uint64_t number) {
  auto error = stream.error();
  if (error && error->task >= number) error.reset();
  return error;
}

}  // namespace npu
