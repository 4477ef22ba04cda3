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

struct OutSpec {
  bool defined;
  bool contiguous;
  caffe2::TypeMeta dtype;
  std::vector<int64_t> sizes, strides;
  bool operator==(const OutSpec&) const = default;
};

// The caller's thread owns a plan and reads `outs` and `n_words`; the launcher
// of the plan's stream uses the Frame. The two never touch the same member.
class Plan final : public npu_kernel, public Frame {
 public:
  // `arguments`: the boxed call; `outs`: its new results in order.
  Plan(const Op& op, at::ArrayRef<c10::IValue> arguments,
       std::vector<OutSpec> outs);

  std::vector<OutSpec> outs;
  uint32_t n_words;      // of a task: the key's words, then one per output
  uint32_t n_key_words;

 private:
  static int run_task(const npu_kernel* kernel, const uint64_t* words,
                      npu_failure* failure);
  void add_argument(Arg& arg, ArgKind kind, const c10::IValue& value,
                    uint32_t& word, bool writes);
  void add_optional_tensors(Arg& arg, const c10::IValue& value, uint32_t& word,
                            bool writes);
  void add_tensor(at::Tensor& view, const at::Tensor& like, uint32_t& word,
                  bool writes);
  void add_scalar(at::Scalar& scalar, const at::Scalar& like, uint32_t& word);
  void add_view(const at::Tensor& view, uint32_t word, uint8_t access);

  std::vector<npu_view> views_;
  KernelSize size_ = KernelSize::kSmall;
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
