// One operator as the engine sees it: its schema, read once, and how to run it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <string>
#include <vector>

#include "csrc/ops/refusals.h"

namespace npu {

class Frame;

// Runs an operator's cpu kernel on a frame's arguments and outputs.
using Runner = void (*)(Frame&);

// Runs any operator through its schema; slower than a generated runner.
void run_boxed(Frame& frame);

// Whether the numbers among a call's arguments are part of its key, as those of
// arange are: they decide the shape of the result.
enum class NumbersInKey : uint8_t { kNo, kYes };

// The kind of an argument, by its type in the schema without "optional".
enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,
  kOptionalTensorList,
  kScalar,
  kScalarList,
  kInt,
  kFloat,
  kBool,
  kInts,
  kFloats,
  kBools,
  kString,
  kGenerator,
  kDevice,
  kOther,
};

// Where the operator's shape inference comes from.
enum class Meta : uint8_t {
  kSharesKernelsCode,  // structured: it cannot disagree with the kernel
  kElementWise,        // the same, and each result is as large as the arguments
                       // together, of a dtype that follows from theirs
  kSeparate,           // has to be checked against the kernel
  kNone,               // only the kernel knows: it is run on zeros, since
                       // shapes and constants alone decide
};

class Shapes;
// Computes what a call returns (shapes.h). Throws or returns false where it
// does not know, or where the call is wrong. For a call that writes into its
// arguments: what the form without out= would return.
using ShapeFunction = bool (*)(c10::ArrayRef<c10::IValue> arguments,
                               Shapes& results);

// It has static storage: generated code makes it, or the boxed table keeps it.
struct Op {
  Op(const char* name, const char* overload, Runner run,
     NumbersInKey numbers = NumbersInKey::kNo, Meta meta = Meta::kSeparate,
     ShapeFunction shapes = nullptr, uint32_t compared = ~0u)
      : name(name),
        overload(overload),
        run(run),
        numbers(numbers),
        meta(meta),
        shapes(shapes),
        compared(compared) {}

  const char* name;      // "aten::add"
  const char* overload;  // "Tensor"
  Runner run;
  NumbersInKey numbers;
  Meta meta;
  ShapeFunction shapes;  // the generated one; callers use the schema's
  // A bit for each written argument that is compared with the other arguments
  // (overlap.h).
  uint32_t compared;

  struct Return {
    bool is_list;
    int argument;  // which argument it is, for in-place and out; -1: new
  };
  struct Schema {
    c10::OperatorHandle handle;
    std::string full_name;  // "aten::add.Tensor"
    std::vector<Return> returns{};
    std::vector<ArgKind> kinds{};  // per argument
    std::vector<bool> writes{};    // per argument
    bool tensors_only = true;      // every return is a Tensor or a list of them
    bool is_random = false;        // draws numbers
    bool result_depends_on_data = false;  // its shape may
    bool has_generator = false;
    bool moves_host_indices{};   // accepts cpu index tensors
    bool on_each{};              // a _foreach operator
    uint32_t from_any_device{};  // a bit for each argument that it takes so
                                 // where it has no dimension
    bool writes_any = false;     // it writes at least one argument
    bool unmarked_writes{};  // more than the schema says (unmarked_writes.h)
    ShapeFunction shapes{};  // null: ask the meta kernel
    Refusal refusal{};       // null: whoever tells the shapes refuses all
    at::ArrayRef<at::ScalarType> widened{};  // computed wider (widened.h)
  };
  // Any thread; reads the dispatcher at the first call.
  const Schema& schema() const;

  // Notes that the dispatcher has the operator no more. A task that was queued
  // before then fails.
  void leave() const { has_left_.store(true, std::memory_order_relaxed); }
  // Relaxed: whoever takes an operator away has waited for its tasks; this is
  // for those that could not run before.
  bool has_left() const { return has_left_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<bool> has_left_{false};
  mutable std::atomic<const Schema*> schema_{nullptr};
};
static_assert(alignof(Op) >= 8);  // a key leaves the lowest bits out

}  // namespace npu
