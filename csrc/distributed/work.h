// What a collective returns: streams and the host can wait for the end of its
// task.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace npu {

class Stream;

// The end of a task: its stream and its number there.
struct Point {
  Stream* stream;
  uint64_t number;  // tasks that must have retired
};

class HcclWork final : public c10d::Work {
 public:
  enum class Waits { kStream, kHost };

  HcclWork(int rank, c10d::OpType type, uint64_t seq, Point end,
           std::vector<at::Tensor> outputs, Waits waits,
           std::shared_ptr<int> source = nullptr);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait_on_stream(); }
  // Makes the current stream wait; with a timeout, and for barriers, the host.
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { wait_on_stream(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return seq_; }

 private:
  void wait_on_stream();

  const uint64_t seq_;
  const Point end_;
  const std::vector<at::Tensor> outputs_;
  const Waits waits_;
  const std::shared_ptr<int> source_;  // the sender, for a recv from any rank
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace npu
