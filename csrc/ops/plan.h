// A call whose shapes are known: everything about a launch but its addresses
// and scalars. Made at the first call of its kind, found again by key.
#pragma once

#include <memory>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernel_threads.h"
#include "csrc/ops/op.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

// The caller's thread makes and reads a plan; the launcher of the plan's
// stream only runs it. Nothing the launcher writes is in here, but the pointer
// to its frame, once.
class Plan final : public npu_kernel {
 public:
  // `arguments`: the boxed call; `outs`: its new results in order.
  Plan(const Op& op, at::ArrayRef<c10::IValue> arguments,
       std::vector<OutSpec> outs);

  // The same call for one place in a graph: with a frame of its own, which
  // keeps its addresses from run to run.
  std::unique_ptr<Plan> for_graph() const;
  // Whether a kernel is a plan.
  static bool is_plan(const npu_kernel* kernel);

  const std::vector<OutSpec> outs;
  uint32_t n_words;  // of a task: the key's words, then one per output
  uint32_t n_key_words;
  int random_word = -1;  // where the generator's two words are

 private:
  // The kernel's function: runs the launcher's frame by `kRun`.
  template <void (Frame::*kRun)(const uint64_t*)>
  static int run_frame(const npu_kernel* kernel, const uint64_t* words,
                       npu_failure* failure);
  void add_view(const at::Tensor& shape, uint32_t word, uint8_t access);

  const Op& op_;
  KernelSize size_ = KernelSize::kSmall;
  bool flushes_denormal_ = LaunchState::flushes_denormal();
  std::vector<c10::IValue> arguments_;  // with meta tensors
  std::vector<at::Tensor> shapes_;      // of all views, kept for observers
  std::vector<npu_view> views_;
  std::unique_ptr<Frame> frame_;  // the launcher's
};

// Plans of one thread for one stream.
class PlanTable {
 public:
  explicit PlanTable(Stream& stream) : stream_(stream) {}
  // Plans go to a graveyard until the stream has no task that names them.
  ~PlanTable();

  Plan* find(const Key& key, uint64_t hash) const;
  void insert(std::vector<uint64_t> key, uint64_t hash,
              std::unique_ptr<Plan> plan);

 private:
  struct Entry {
    uint64_t hash = 0;
    std::vector<uint64_t> key;
    std::unique_ptr<Plan> plan;
  };
  static constexpr size_t kMaxPlans = 8192;

  void clear();

  Stream& stream_;
  size_t size_ = 0;
  std::vector<Entry> entries_ = std::vector<Entry>(256);
};

// The calling thread's table for a stream.
PlanTable& plan_table(Stream& stream);

// Gives up a plan that a queued task may still name.
void retire_plan(std::unique_ptr<Plan> plan, Stream& stream);

}  // namespace npu
