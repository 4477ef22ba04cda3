// What a collective returns: streams and the host can wait for the end of its
// task.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "csrc/distributed/comm_streams.h"
#include "csrc/distributed/member.h"

namespace npu {

// A call, as errors name it.
struct CallName {
  std::shared_ptr<const Member> member;
  const char* op;  // "hccl:all_reduce"
  uint64_t seq;
  uint32_t site;
};

class HcclWork final : public c10d::Work {
 public:
  enum class Waits { kStream, kHost };
  using Points = c10::SmallVector<Point, 1>;

  // `ends`: the work is over once all of these are reached.
  HcclWork(int rank, c10d::OpType type, CallName call, Points ends,
           std::vector<at::Tensor> outputs, Waits waits,
           std::shared_ptr<int> source = nullptr);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait_on_stream(); }
  // Makes the current stream of each device of the work wait; with a timeout,
  // and for barriers, the host.
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { wait_on_stream(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_.seq; }

 private:
  bool is_over() const;
  void raise_if_failed() const;
  void wait_on_stream();
  [[noreturn]] void raise_late(const Point& end,
                               std::chrono::milliseconds waited) const;

  const CallName call_;
  const Points ends_;
  const std::vector<at::Tensor> outputs_;
  const Waits waits_;
  const std::shared_ptr<int> source_;  // the sender, for a recv from any rank
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace npu
