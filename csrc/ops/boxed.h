// Operators without a wrapper: they are found, encoded and run by their schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "csrc/ops/key.h"
#include "csrc/ops/op.h"
#include "csrc/ops/plan.h"

namespace npu {

// Encodes a boxed call as Key::add() would.
void encode(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack);

// Launches the call that was encoded so, as launch_known() does, and exchanges
// its arguments for its results.
bool launch_encoded(const Op& op, Key& key, torch::jit::Stack& stack);

// The same, by a known plan.
void launch_by(Stream& stream, Plan& plan, const Op& op, Key& key,
               torch::jit::Stack& stack);

// Calls `op` with boxed arguments.
void call_op(const Op& op, torch::jit::Stack& stack);

// The same, with the top of a stack.
void call_on_top(const Op& op, torch::jit::Stack* stack);

// Sets what runs such an operator's tasks instead of its cpu kernel. `name` has
// the overload after a dot: "aten::_foreach_sqrt.". Called while the module is
// loaded.
void set_runner(std::string name, Runner run);

// Forgets what is known of an operator without a generated wrapper, such as
// plans, because it has other kernels now. `name`: as for set_runner().
void forget_operator(const std::string& name);
// Whether there is something to forget, or tasks of it may be queued.
bool knows_operator(const std::string& name);

// The kernel of every operator without a generated wrapper.
void call_boxed(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// Runs the operator while the caller waits, whatever it is: for arguments that
// no task can carry (sparse and nested tensors).
void call_waiting(const Op& op, torch::jit::Stack& stack);
void call_boxed_waiting(const c10::OperatorHandle& handle,
                        torch::jit::Stack* stack);

}  // namespace npu
