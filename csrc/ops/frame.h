// Runs calls of one identity on the launcher: its cpu views over device memory
// take over each plan's shapes, and each task's addresses, in turn.
#pragma once

#include <ATen/DimVector.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/ops/key.h"
#include "csrc/ops/op.h"
#include "csrc/ops/out_spec.h"

namespace npu {

// One argument. A value that does not change from task to task is in
// `constant`.
struct Arg {
  Tag tag = Tag::kNone;
  at::Tensor tensor;
  at::Scalar scalar;
  double real = 0;
  at::Generator generator;
  c10::IValue constant;
  std::vector<int64_t> ints;
  std::vector<double> reals;
  std::vector<at::Tensor> tensors;
  std::vector<at::Scalar> scalars;
  c10::List<std::optional<at::Tensor>> optional_tensors;
};

// Only one thread, the launcher of its stream, uses a frame, for one task at a
// time. The frame is made on that thread, too, so that its memory, which every
// task writes, does not share cache lines with memory that the caller reads.
class Frame {
 public:
  // `arguments`: the call with meta tensors in place of the device's; `outs`:
  // its new results. Words are laid out as Key lays them out, then one per
  // defined output.
  Frame(const Op& op, at::ArrayRef<c10::IValue> arguments,
        const std::vector<OutSpec>& outs);
  Frame(const Frame&) = delete;

  // Takes over the shapes and constants of another call of the same identity:
  // the serial number of its plan, the shapes of the plan's views in order, and
  // the plan's arguments without tensors and numbers, if any; and how many
  // bytes behind a task's addresses they begin, if not there.
  void adopt(uint64_t serial, at::ArrayRef<npu_view> views,
             at::ArrayRef<c10::IValue> constants,
             at::ArrayRef<uint64_t> offsets = {});
  uint64_t holds() const { return serial_; }
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
  std::optional<at::Tensor> opt_tensor(int i) const;
  at::TensorList tensors(int i) const { return args_[i].tensors; }
  const c10::List<std::optional<at::Tensor>>& opt_tensors(int i) const {
    return args_[i].optional_tensors;
  }
  const at::Scalar& scalar(int i) const { return args_[i].scalar; }
  std::optional<at::Scalar> opt_scalar(int i) const;
  at::ArrayRef<at::Scalar> scalars(int i) const { return args_[i].scalars; }
  std::optional<at::Generator> generator(int i) const {
    return args_[i].generator;
  }
  int64_t integer(int i) const { return args_[i].constant.toInt(); }
  std::optional<int64_t> opt_integer(int i) const;
  bool boolean(int i) const { return args_[i].constant.toBool(); }
  std::optional<bool> opt_boolean(int i) const;
  double real(int i) const { return args_[i].real; }
  std::optional<double> opt_real(int i) const;
  at::IntArrayRef ints(int i) const { return args_[i].ints; }
  at::OptionalIntArrayRef opt_ints(int i) const;
  std::optional<at::ArrayRef<double>> opt_reals(int i) const;
  std::string_view string(int i) const {
    return args_[i].constant.toStringView();
  }
  std::optional<std::string_view> opt_string(int i) const;
  at::ScalarType dtype(int i) const { return args_[i].constant.toScalarType(); }
  std::optional<at::ScalarType> opt_dtype(int i) const;
  std::optional<at::Layout> opt_layout(int i) const;
  std::optional<at::Device> opt_device(int) const { return at::kCPU; }
  std::optional<at::MemoryFormat> opt_memory_format(int i) const;
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

  const Op& op() const { return op_; }
  std::vector<Arg>& args() { return args_; }

 private:
  // What a view looks like before every task.
  struct Shape {
    at::DimVector sizes, strides;
    at::ScalarType dtype;
    uint8_t flags;
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

  void add_argument(Arg& arg, ArgKind kind, const c10::IValue& value,
                    bool writes);
  // Kernels ask whether two arguments are one tensor.
  void join(const at::Tensor& view, at::Tensor& with);
  void add_optional_tensors(Arg& arg, const c10::IValue& value);
  void add_tensor(at::Tensor& view, const at::Tensor& like, bool writes);
  void add_scalar(at::Scalar& scalar, const at::Scalar& like);
  void add_slot(at::Tensor& view, Shape shape, bool in_the_words, bool written);
  void set_shape(Slot& slot, const npu_view& view);
  static void set_constant(Arg& arg, ArgKind kind, const c10::IValue& value);
  void run_op();
  void bind(const uint64_t* words);
  bool lies_in_results(const at::Tensor& t) const;
  void seed(const uint64_t* words);
  // Called after a task: replaces views that the kernel kept or reshaped. One
  // that the kernel gave memory of its own is copied back first.
  void restore_views();
  void make_anew(Slot& slot);

  const Op& op_;
  uint64_t serial_ = 0;  // of the plan; 0: of none
  bool runs_ = false;
  uint32_t next_word_ = 0;  // while the frame is being made
  std::vector<Arg> args_;
  std::vector<at::Tensor> outs_;  // of fixed size: slots point to them
  std::vector<at::Tensor*> results_;
  std::vector<Slot> slots_;
  std::vector<HostValue> host_values_;  // of the slots in the words, in order
  std::vector<Shape> shapes_;
  std::vector<ScalarSlot> scalar_slots_;
  std::vector<RealSlot> real_slots_;
  bool bound_ = false;  // every view has the address of the last run
  int generator_arg_ = -1;
  uint32_t generator_word_ = 0;
};

// A cpu tensor of this shape over no memory yet.
at::Tensor make_view(at::IntArrayRef sizes, at::IntArrayRef strides,
                     at::ScalarType dtype, uint8_t flags);

}  // namespace npu
