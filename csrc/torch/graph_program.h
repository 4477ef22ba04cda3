// A compiled graph whose shapes are fixed, as a list of steps: what the Python
// program that Inductor writes does, without Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace npu {

class Stream;
class WordKernel;

// Of a tensor.
struct Extents {
  std::vector<int64_t> sizes, strides;

  bool match(const at::Tensor& t) const {
    return t.sizes() == sizes && t.strides() == strides;
  }
};

// Steps are added once, then any thread runs the program. A run takes no lock
// and keeps nothing. Tensors are named by the number of their slot; the inputs
// are in the first ones.
class GraphProgram {
 public:
  using Tensors = std::vector<at::Tensor>;
  // A word of a launch, or an argument of a call, that is a slot's tensor.
  struct Use {
    uint32_t argument;
    uint32_t slot;
  };
  static constexpr int kNone = -1;

  GraphProgram(int device, size_t inputs, size_t slots)
      : device_(device), inputs_(inputs), slots_(slots) {}

  // The input has to have these sizes and strides.
  void expect(uint32_t slot, Extents extents) {
    expected_.push_back({slot, std::move(extents)});
  }
  void allocate(uint32_t slot, Extents extents, at::ScalarType type);
  // A tensor with the memory of another one, `offset` elements behind.
  void view(uint32_t slot, uint32_t of, Extents extents, int64_t offset);
  // The result of a call has to have these sizes and strides.
  void check(uint32_t slot, Extents extents);
  // `words`: those that are no tensors, with 0 for the others. The kernel's
  // tensors have the same extents at each call.
  void launch(const WordKernel& kernel, std::vector<uint64_t> words,
              std::vector<Use> tensors);
  // `arguments`: all of the operator's, with None for slots' tensors.
  // `results`: their slots; none of a variant with `out`.
  void call(const c10::OperatorHandle& op, torch::jit::Stack arguments,
            std::vector<Use> tensors, std::vector<uint32_t> results);
  void drop(uint32_t slot);
  // The slots of what a run returns; kNone: an undefined tensor.
  void give(std::vector<int> results) { results_ = std::move(results); }

  size_t inputs() const { return inputs_; }

  // Whether it runs these inputs now, or the Python program has to, which knows
  // what is wrong with them and who is watching.
  bool takes(const Tensors& inputs) const;

  // Runs on the calling thread's stream, without autograd. `inputs`: those
  // that takes() was asked for; they are consumed. Throws what a launch throws.
  Tensors run(Tensors inputs) const;

 private:
  enum class Kind : uint8_t { kAllocate, kView, kCheck, kLaunch, kCall, kDrop };
  struct Step {
    Kind kind;
    uint32_t at;  // in the list of its kind; of kDrop the slot
  };
  struct Expected {
    uint32_t slot;
    Extents extents;
  };
  struct Allocation {
    uint32_t slot;
    Extents extents;
    at::ScalarType type;
  };
  struct View {
    uint32_t slot, of;
    Extents extents;
    int64_t offset;
  };
  struct Launch {
    const WordKernel* kernel;
    std::vector<uint64_t> words;
    std::vector<Use> tensors;
  };
  struct Call {
    c10::OperatorHandle op;
    torch::jit::Stack arguments;
    std::vector<Use> tensors;
    std::vector<uint32_t> results;
  };

  void add(Kind kind, size_t at) { steps_.push_back({kind, uint32_t(at)}); }
  void run_launch(const Launch& launch, Stream& stream, Tensors& slots) const;
  static void run_call(const Call& call, Tensors& slots);

  const int device_;
  const size_t inputs_, slots_;
  std::vector<Step> steps_;
  std::vector<Expected> expected_, checks_;
  std::vector<Allocation> allocations_;
  std::vector<View> views_;
  std::vector<Launch> launches_;
  std::vector<Call> calls_;
  std::vector<int> results_;
};

}  // namespace npu
