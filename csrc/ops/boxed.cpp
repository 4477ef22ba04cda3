#include "csrc/ops/boxed.h"

#include <map>
#include <mutex>
#include <unordered_map>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/plan.h"
#include "csrc/ops/result_memory.h"

namespace npu {
namespace {

void add(Key& key, ArgKind kind, const c10::IValue& value) {
  if (kind == ArgKind::kGenerator)
    return key.add(value.toOptional<at::Generator>());
  if (value.isNone())
    return kind == ArgKind::kTensor ? key.add(std::optional<at::Tensor>())
                                    : key.add(std::optional<bool>());
  switch (kind) {
    case ArgKind::kTensor:
      return key.add(value.toTensor());
    case ArgKind::kTensorList: {
      const auto list = value.toTensorVector();
      return key.add(at::TensorList(list));
    }
    case ArgKind::kOptionalTensorList: {
      const auto list = value.toListRef();
      key.add_list(list.size());
      for (const c10::IValue& element : list)
        key.add(element.isNone() ? std::nullopt
                                 : std::optional(element.toTensor()));
      return;
    }
    case ArgKind::kScalar:
      return key.add(value.toScalar());
    case ArgKind::kScalarList: {
      const auto list = value.toListRef();
      key.add_list(list.size());
      for (const c10::IValue& element : list) key.add(element.toScalar());
      return;
    }
    case ArgKind::kInt:
      return key.add(value.toInt());
    case ArgKind::kFloat:
      return key.add(value.toDouble());
    case ArgKind::kBool:
      return key.add(value.toBool());
    case ArgKind::kInts:
      return key.add(at::IntArrayRef(value.toIntVector()));
    case ArgKind::kFloats:
      return key.add(at::ArrayRef<double>(value.toDoubleVector()));
    case ArgKind::kBools: {
      const auto list = value.toBoolList();
      std::array<bool, 8> bits{};
      if (list.size() > bits.size()) break;
      std::copy(list.begin(), list.end(), bits.begin());
      return key.add(bits);
    }
    case ArgKind::kString:
      return key.add(value.toStringView());
    case ArgKind::kDevice:
      return key.add(value.toDevice());
    default:
      // Enumerators are boxed as integers.
      if (value.isInt()) return key.add(at::ScalarType(value.toInt()));
  }
  key.ordinary = false;  // nothing a plan can be keyed by
}

// torch's own operators whose result size is computed from numbers take them
// through generated wrappers; of anybody else's nothing is known.
ScalarValues scalar_values(std::string_view name) {
  return name.starts_with("aten::") ? ScalarValues::kDoNotDecide
                                    : ScalarValues::kDecide;
}

// Written while the module is loaded, then only read.
std::map<std::string, Runner>& runners() {
  static auto* const instance = new std::map<std::string, Runner>;
  return *instance;
}

// One Op per registered schema. A library may be unloaded and another loaded
// in its place, so both the schema's address and its name count.
const Op& op_of(const c10::OperatorHandle& handle) {
  thread_local std::unordered_map<const void*, const Op*> known;
  const void* schema = &handle.schema();
  const c10::OperatorName& name = handle.operator_name();
  const Op*& cached = known[schema];
  if (cached && name.name == cached->name &&
      name.overload_name == cached->overload)
    return *cached;
  static std::mutex mutex;
  static auto* const all =
      new std::map<std::pair<std::string, const void*>, std::unique_ptr<Op>>;
  std::lock_guard lock(mutex);
  const std::string full = name.name + "." + name.overload_name;
  auto& op = (*all)[{full, schema}];
  if (!op) {
    const auto own = runners().find(full);
    op = std::make_unique<Op>(strdup(name.name.c_str()),
                              strdup(name.overload_name.c_str()),
                              own == runners().end() ? &run_boxed : own->second,
                              scalar_values(name.name));
  }
  cached = op.get();
  return *cached;
}

c10::IValue unbox(const Arg& arg, ArgKind kind) {
  switch (kind) {
    case ArgKind::kTensor:
      return arg.tag == Tag::kUndefined ? c10::IValue() : arg.tensor;
    case ArgKind::kTensorList:
      return arg.tensors;
    case ArgKind::kOptionalTensorList:
      return arg.optional_tensors;
    case ArgKind::kScalar:
      return arg.tag == Tag::kScalar ? c10::IValue(arg.scalar) : c10::IValue();
    case ArgKind::kFloat:
      return arg.tag == Tag::kFloat ? c10::IValue(arg.real) : c10::IValue();
    case ArgKind::kScalarList: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const at::Scalar& s : arg.scalars) list.push_back(s);
      return list;
    }
    case ArgKind::kGenerator:
      return arg.generator;
    case ArgKind::kDevice:
      return arg.constant.isNone() ? arg.constant
                                   : c10::IValue(c10::Device(c10::kCPU));
    default:
      return arg.constant;
  }
}

// Gives `call` the operator's arguments, which are only the top of the stack.
void on_top(const Op& op, torch::jit::Stack* stack,
            void (*call)(const Op&, torch::jit::Stack&)) {
  const size_t n = op.schema().kinds.size();
  if (stack->size() == n) return call(op, *stack);
  torch::jit::Stack own(stack->end() - ptrdiff_t(n), stack->end());
  call(op, own);
  stack->resize(stack->size() - n);
  for (c10::IValue& result : own) stack->push_back(std::move(result));
}

// Moves the plan's new results to the stack, with the in-place ones between.
void push_results(const Op::Schema& schema, const torch::jit::Stack& arguments,
                  std::vector<at::Tensor>& outs, torch::jit::Stack& stack) {
  size_t next = 0, single = 0;
  for (const Op::Return& r : schema.returns)
    single += r.argument < 0 && !r.is_list;
  torch::jit::Stack results;
  for (const Op::Return& r : schema.returns) {
    if (r.argument >= 0) {
      results.push_back(arguments[r.argument]);
    } else if (r.is_list) {
      // The only one (infer()), so it has all that the others leave.
      c10::List<at::Tensor> list;
      for (size_t n = outs.size() - single; n > 0; --n)
        list.push_back(std::move(outs[next++]));
      results.emplace_back(std::move(list));
    } else {
      results.emplace_back(std::move(outs[next++]));
    }
  }
  stack = std::move(results);
}

// As try_launch().
bool try_launch_boxed(const Op& op, torch::jit::Stack& stack) {
  KeyScope scope;
  Key& key = scope.key;
  encode(key, op, stack);
  if (!key.ordinary) return false;
  Stream& stream = stream_of(key);
  Plan* plan = plan_table(stream).find(key, key.hash());
  if (!plan) return false;
  for (size_t i = 0; i < stack.size(); ++i)
    if (op.schema().kinds[i] == ArgKind::kGenerator)
      draw(key, stack[i].toOptional<at::Generator>());
  launch_boxed(op, stream, *plan, key, stack);
  return true;
}

}  // namespace

void encode(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  key.reset(&op, op.values == ScalarValues::kDecide);
  for (size_t i = 0; i < stack.size(); ++i) add(key, schema.kinds[i], stack[i]);
}

void launch_boxed(const Op& op, Stream& stream, Plan& plan, const Key& key,
                  torch::jit::Stack& stack) {
  std::vector<at::Tensor> outs(plan.outs.size());
  launch(stream, plan, key, outs.data());
  push_results(op.schema(), stack, outs, stack);
}

void call_op(const Op& op, torch::jit::Stack& stack) {
  if (!try_launch_boxed(op, stack)) call_cold(op, stack);
}

void set_runner(std::string name, Runner run) {
  runners()[std::move(name)] = run;
}

void call_boxed(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  on_top(op_of(handle), stack, call_op);
}

void call_on_top(const Op& op, torch::jit::Stack* stack) {
  on_top(op, stack, call_op);
}

void call_boxed_waiting(const c10::OperatorHandle& handle,
                        torch::jit::Stack* stack) {
  on_top(op_of(handle), stack, call_waiting);
}

void run_boxed(Frame& frame) {
  const Op::Schema& schema = frame.op().schema();
  torch::jit::Stack stack;
  stack.reserve(frame.args().size());
  for (size_t i = 0; i < frame.args().size(); ++i)
    stack.push_back(unbox(frame.args()[i], schema.kinds[i]));
  // The slow paths of _foreach operators, which only make their results.
  // Others may keep memory of their own that happens to be of that size.
  const bool lists = schema.returns.size() == 1 && schema.returns[0].is_list;
  const ResultMemory offered(lists ? frame.new_results() : at::TensorList());
  schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                &stack);
  std::vector<at::Tensor> results;
  for (size_t k = 0; k < schema.returns.size(); ++k) {
    const Op::Return& r = schema.returns[k];
    if (r.argument >= 0) continue;
    if (r.is_list) {
      for (const at::Tensor& t : stack[k].toTensorVector())
        results.push_back(t);
    } else {
      results.push_back(stack[k].toTensor());
    }
  }
  frame.store(std::move(results));
}

}  // namespace npu
