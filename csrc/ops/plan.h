// A call whose shapes are known: everything about a launch but its addresses
// and numbers. Made at the first call with these shapes, found again by key.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/op.h"
#include "csrc/torch/kernel_threads.h"

namespace npu {

class Stream;

// What the plans of one identity share: calls of an operator that differ in
// sizes, strides, integers and addresses alone. Made by the caller's thread;
// only the launcher looks at the frame.
struct Family {
  // `arguments`: one call of it; `outs`: its new results in order.
  Family(const Op& op, at::ArrayRef<c10::IValue> arguments,
         std::vector<OutSpec> outs);

  // Whether a frame of this family can hold such results.
  bool suits(const std::vector<OutSpec>& outs) const;
  std::shared_ptr<Family> copy() const {
    return std::make_shared<Family>(op, arguments, outs);
  }

  const Op& op;
  const std::vector<c10::IValue> arguments;  // with meta tensors
  const std::vector<OutSpec> outs;
  std::unique_ptr<Frame> frame;  // the launcher's
};

// The caller's thread makes and reads a plan; the launcher of the plan's
// stream only runs it. Nothing the launcher writes is in here, but where its
// frame is, a few times.
class Plan final : public npu_kernel {
 public:
  // `arguments`: the boxed call, encoded as `key`; `outs`: its new results in
  // order.
  Plan(std::shared_ptr<Family> family, at::ArrayRef<c10::IValue> arguments,
       const Key& key, std::vector<OutSpec> outs);
  ~Plan();

  // The same call for one place in a graph: with a frame of its own, which
  // keeps its addresses from run to run.
  std::unique_ptr<Plan> for_graph() const;
  // Whether a kernel is a plan.
  static bool is_plan(const npu_kernel* kernel);

  // What it takes of the host's memory, without frames.
  size_t bytes() const;

  // Of the call that it was made for.
  at::ArrayRef<uint64_t> key() const {
    return {block_.get() + block_words_ - key_words_, key_words_};
  }

  const std::vector<OutSpec> outs;
  uint32_t n_words;      // of a task: the key's words, then one per output
  int random_word = -1;  // where the generator's two words are

 private:
  Plan(const Plan& other, std::shared_ptr<Family> family);

  // The kernel's function: runs the launcher's frame by `kRun`.
  template <void (Frame::*kRun)(const uint64_t*)>
  static int run_frame(const npu_kernel* kernel, const uint64_t* words,
                       npu_failure* failure);
  // The launcher's, with this plan's shapes.
  Frame& frame();
  void make_own_frame();
  bool is_large_product() const;
  struct Room;  // what of block_ is still to be written
  void add_view(Room& room, at::IntArrayRef sizes, at::IntArrayRef strides,
                size_t itemsize, uint32_t word, uint8_t access);

  const std::shared_ptr<Family> family_;
  const uint64_t serial_;  // tells it from plans that lay at its address before
  KernelSize size_ = KernelSize::kSmall;
  bool flushes_denormal_ = LaunchState::flushes_denormal();
  uint8_t adoptions_ = 0;               // of the family's frame; the launcher's
  std::vector<c10::IValue> constants_;  // by argument; empty: there are none
  // The views, then of each its sizes and strides, then the key: in one piece,
  // which spares a first call the making of three.
  std::unique_ptr<uint64_t[]> block_;
  uint32_t block_words_ = 0, key_words_ = 0;
  std::unique_ptr<Frame> own_;  // the launcher's
};

// Plans of one thread for one stream, within a bound of memory: where a program
// does not repeat its shapes, those that were never asked for again go first.
class PlanTable {
 public:
  explicit PlanTable(Stream& stream) : stream_(stream) {}
  // Plans are kept (deferred_delete.h) until the stream has no task that names
  // them.
  ~PlanTable();

  Plan* find(const Key& key, uint64_t hash) const;
  // `may_evict`: no caller on this thread holds a plan it has not launched yet.
  Plan& insert(uint64_t hash, std::unique_ptr<Plan> plan, bool may_evict);
  // The family of a call that is to have a plan; `stack`, `outs` as in Family.
  std::shared_ptr<Family> family(const Op& op, const Key& key,
                                 at::ArrayRef<c10::IValue> stack,
                                 const std::vector<OutSpec>& outs);
  // One of the call's identity that had plans before; null if there is none.
  std::shared_ptr<Family> known_family(const Key& key) const;

 private:
  struct Entry {
    uint64_t hash = 0;
    const uint64_t* key = nullptr;  // the plan's
    uint32_t key_words = 0;
    mutable bool used = false;  // since the hand last passed
    std::unique_ptr<Plan> plan;
  };
  struct Named {
    std::vector<uint64_t> identity;
    std::shared_ptr<Family> family;
  };
  // With its place in the table.
  static size_t bytes_of(const Plan& plan) {
    return sizeof(Entry) + plan.bytes();
  }
  static constexpr size_t kMaxBytes = 4 << 20;
  static constexpr size_t kMaxFamilies = 1024;

  template <typename Suits>
  std::shared_ptr<Family> find_family(const Words& identity, uint64_t hash,
                                      Suits suits) const;
  void grow();
  void make_room();
  void remove(size_t at);

  Stream& stream_;
  size_t size_ = 0;
  size_t bytes_ = 0;
  size_t hand_ = 0;  // of the clock that finds what to give up
  std::vector<Entry> entries_ = std::vector<Entry>(256);
  std::unordered_multimap<uint64_t, Named> families_;  // by hash of identity
};

// The calling thread's table for a stream.
PlanTable& plan_table(Stream& stream);

// How many plans a table keeps at most, besides its bound of bytes; returns
// what held until now. Any thread.
size_t set_plan_limit(size_t plans);

// Gives up a plan that a queued task may still name.
void retire_plan(std::unique_ptr<Plan> plan, Stream& stream);

}  // namespace npu
