// Runs a plan's calls on the launcher: cpu views over device memory, which take
// over each task's addresses in turn.
#pragma once

#include <ATen/DimVector.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/ops/key_parts.h"
#include "csrc/ops/op.h"
#include "csrc/ops/out_spec.h"
#include "csrc/torch/generator.h"

namespace npu {

// One argument; which member has it follows from its kind.
struct Arg {
  Tag tag = Tag::kNone;
  at::Tensor tensor;
  at::Scalar scalar;
  double real = 0;
  int64_t integer = 0;  // also a flag or an enumerator
  std::string text;
  std::vector<int64_t> ints;  // also flags
  std::vector<double> reals;
  std::vector<at::Tensor> tensors;
  std::vector<at::Scalar> scalars;
  // Of arguments of that kind only: a list takes memory even when it is empty.
  std::optional<c10::List<std::optional<at::Tensor>>> optional_tensors;
};

// Only one thread, the launcher of its stream, uses a frame, for one task at a
// time. The frame is made on that thread, too, so that its memory, which every
// task writes, does not share cache lines with memory that the caller reads.
class Frame {
 public:
  // `key`: the plan's; `outs`: its new results. A task's words are laid out as
  // Key lays them out, then one per defined output.
  Frame(const Op& op, at::ArrayRef<uint64_t> key,
        const std::vector<OutSpec>& outs);
  Frame(const Frame&) = delete;

  // Makes it the frame of a piece of the call: the views' shapes in order, and
  // how many bytes behind a task's addresses they begin.
  void set_shapes(at::ArrayRef<npu_view> views, at::ArrayRef<uint64_t> offsets);
  // Whether it is in the middle of a task, whose kernel may launch others.
  bool runs() const { return runs_; }

  // One task: points the views at its addresses, runs the operator.
  void run(const uint64_t* words);
  // The same task again: addresses and scalars are those of the last run, at
  // the same place; only the generator's words may differ.
  void run_again(const uint64_t* words);

  // Arguments, by position in the schema.
  const at::Tensor& tensor(int i) const { return args_[i].tensor; }
  at::Tensor& writable(int i) { return args_[i].tensor; }
  std::optional<at::Tensor> opt_tensor(int i) const {
    if (!args_[i].tensor.defined()) return std::nullopt;
    return args_[i].tensor;
  }
  at::TensorList tensors(int i) const { return args_[i].tensors; }
  const c10::List<std::optional<at::Tensor>>& opt_tensors(int i) const {
    return *args_[i].optional_tensors;
  }
  const at::Scalar& scalar(int i) const { return args_[i].scalar; }
  at::ArrayRef<at::Scalar> scalars(int i) const { return args_[i].scalars; }
  // A cpu generator that is seeded for the task.
  std::optional<at::Generator> generator(int) const {
    return seeded_generator(seed_);
  }
  RandomSeed seed() const { return seed_; }
  int64_t integer(int i) const { return args_[i].integer; }
  bool boolean(int i) const { return args_[i].integer != 0; }
  double real(int i) const { return args_[i].real; }
  at::IntArrayRef ints(int i) const { return args_[i].ints; }
  at::ArrayRef<double> reals(int i) const { return args_[i].reals; }
  std::string_view string(int i) const { return args_[i].text; }
  at::ScalarType dtype(int i) const { return at::ScalarType(args_[i].integer); }
  at::MemoryFormat memory_format(int i) const {
    return at::MemoryFormat(args_[i].integer);
  }
  // The value of an optional argument, unless it is missing.
  template <typename T>
  std::optional<T> opt(int i, const T& value) const {
    if (args_[i].tag == Tag::kNone) return std::nullopt;
    return value;
  }
  template <size_t N>
  std::array<bool, N> booleans(int i) const {
    std::array<bool, N> values;
    for (size_t k = 0; k < N; ++k) values[k] = args_[i].ints[k] != 0;
    return values;
  }

  // The i-th result: new memory, or the argument that is written in place.
  at::Tensor& out(int i) { return *results_[i]; }
  // The results that are not arguments.
  at::TensorList new_results() const { return outs_; }
  // Copies a kernel's own results into new_results(), unless the kernel has
  // made them there (ResultMemory). A result may be undefined only where that
  // was inferred.
  void store(std::vector<at::Tensor> results);

  // How much memory a frame takes, about.
  static size_t bytes(size_t arguments, size_t views) {
    return sizeof(Frame) + arguments * sizeof(Arg) +
           views * (sizeof(Slot) + sizeof(Shape) + sizeof(c10::TensorImpl) +
                    sizeof(c10::StorageImpl));
  }

  const Op& op() const { return op_; }
  std::vector<Arg>& args() { return args_; }

 private:
  // What a view looks like before every task.
  struct Shape {
    at::DimVector sizes, strides;
    at::ScalarType dtype;
    uint8_t flags;
    at::Tensor make() const;  // over no memory yet
  };
  struct Slot {
    at::Tensor* tensor;
    c10::StorageImpl* storage;
    void* address;    // where it was last bound
    uint64_t offset;  // behind the task's address
    uint32_t word;
    uint32_t shape;     // index into shapes_
    uint32_t owners;    // how many references the frame has
    uint32_t first;     // the first slot of the same tensor
    bool in_the_words;  // the task has the tensor's bytes, not its address
    bool written;
    bool listed;  // also in a list, which is only read
  };
  // Kernels load a complex128 as one piece of 16 bytes, which must be aligned;
  // words are aligned to 8.
  struct alignas(16) HostValue {
    uint64_t words[2];
  };
  struct ScalarSlot {
    at::Scalar* scalar;
    at::ScalarType type;
    uint32_t word;
  };

  struct RealSlot {
    double* real;
    uint32_t word;
  };

  void add_part(const Part& part);
  void add_tensor(at::Tensor& view, const Part& part);
  void add_slot(at::Tensor& view, Shape shape, uint32_t word, bool written);
  // Makes two arguments one tensor, where the call's are: kernels ask for it.
  void join(at::Tensor& one, at::Tensor& other);
  void set_shape(Slot& slot, const npu_view& view);
  void set_constant(Arg& arg, const Part& part);
  void run_op();
  void bind(const uint64_t* words);
  bool lies_in_results(const at::Tensor& t) const;
  // Called after a task: replaces views that the kernel kept or reshaped. A
  // result that the kernel gave memory of its own is copied back first. A
  // kernel that has failed has no results.
  void restore_views(bool has_results);
  void make_anew(Slot& slot, bool has_results);

  const Op& op_;
  bool runs_ = false;
  std::vector<Arg> args_;
  std::vector<at::Tensor> outs_;  // of fixed size: slots point to them
  std::vector<at::Tensor*> results_;
  std::vector<Slot> slots_;
  std::vector<HostValue> host_values_;  // of the slots in the words, in order
  std::vector<Shape> shapes_;
  std::vector<ScalarSlot> scalar_slots_;
  std::vector<RealSlot> real_slots_;
  bool bound_ = false;  // every view has the address of the last run
  int seed_word_ = -1;  // where a task has its seed and offset; -1: nowhere
  RandomSeed seed_{};
};

}  // namespace npu
