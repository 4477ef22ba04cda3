// A call whose shapes are known: everything about a launch but its addresses
// and numbers. It is made at the first call with these shapes, and found again
// by key.
#pragma once

#include <memory>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/host/kernel_cut.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/op.h"

namespace npu {

class Stream;

// The caller's thread makes and reads a plan; the launcher of the plan's stream
// only runs it, and makes the plan's frames when it first does.
class Plan final : public npu_kernel {
 public:
  // `arguments`: the boxed call, encoded as `key`; `outs`: its new results in
  // order.
  Plan(const Op& op, at::ArrayRef<c10::IValue> arguments, const Key& key,
       std::vector<OutSpec> outs);
  ~Plan();

  // Lets each node of a graph have a plan of its own, whose frame keeps its
  // addresses from run to run. Called once, while the module is loaded.
  static void give_to_graphs();

  // How much host memory the plan takes, with its frames.
  size_t bytes() const { return bytes_; }

  // The key of the call that the plan was made for.
  at::ArrayRef<uint64_t> key() const {
    return {block_.get() + block_words_ - key_words_, key_words_};
  }

  const std::vector<OutSpec> outs;
  uint32_t n_words;      // of a task: the call's words, then one per output
  int random_word = -1;  // where the generator's two words are

 private:
  Plan(const Plan& other);

  // The kernel's function: runs the frame by `kRun`.
  template <void (Frame::*kRun)(const uint64_t*)>
  static int run_frame(const npu_kernel* kernel, const uint64_t* words,
                       npu_failure* failure);
  std::unique_ptr<Frame> make_frame() const;
  bool run_in_pieces(const uint64_t* words);

  const Op& op_;
  KernelSize size_ = KernelSize::kSmall;
  Cut cut_;
  bool flushes_denormal_ = flushes_denormals();
  int threads_;  // of the launch
  size_t bytes_;
  // The views, then sizes and strides that are not in the key, then the key.
  // They are one block, so that a first call makes one allocation.
  std::unique_ptr<uint64_t[]> block_;
  uint32_t block_words_ = 0, key_words_ = 0;
  // Only the launcher uses these.
  std::unique_ptr<Frame> frame_;
  std::vector<std::unique_ptr<Frame>> pieces_;
};

// The plans of one thread for one stream, within a bound of memory: where a
// program does not repeat its shapes, plans that were never asked for again go
// first.
class PlanTable {
 public:
  explicit PlanTable(Stream& stream);
  // Its plans are kept (deferred_delete.h) until no task of the stream names
  // them.
  ~PlanTable();

  Plan* find(const Key& key, uint64_t hash) const;
  // `may_evict`: no caller on this thread holds a plan it has not launched yet.
  Plan& insert(uint64_t hash, std::unique_ptr<Plan> plan, bool may_evict);

 private:
  struct Entry {
    uint64_t hash = 0;
    const uint64_t* key = nullptr;  // the key of the plan
    uint32_t key_words = 0;
    mutable bool used = false;  // since hand_ last passed
    std::unique_ptr<Plan> plan;
  };
  // The plan's memory with its place in the table.
  static size_t bytes_of(const Plan& plan) {
    return sizeof(Entry) + plan.bytes();
  }
  void grow();
  void make_room();
  void remove(size_t at);

  Stream& stream_;
  size_t size_ = 0;
  size_t bytes_ = 0;
  size_t hand_ = 0;  // of the clock algorithm that finds plans to give up
  std::vector<Entry> entries_ = std::vector<Entry>(256);
};

// The calling thread's table for a stream.
PlanTable& plan_table(Stream& stream);

// Sets how many plans a table keeps at most, besides its bound of bytes;
// returns the previous limit. Any thread.
size_t set_plan_limit(size_t plans);

// Frees what dead plans have left to launchers, which free it when they make a
// frame.
void free_frames();

// Destroys a plan once no queued task of the stream can name it.
void retire_plan(std::unique_ptr<Plan> plan, Stream& stream);

}  // namespace npu
