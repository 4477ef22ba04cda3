#include "csrc/ops/boxed.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "csrc/host/kernel_mode.h"
#include "csrc/host/result_memory.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/overlap.h"
#include "csrc/ops/plan.h"

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
    case ArgKind::kTensorList:
    case ArgKind::kOptionalTensorList: {
      const auto list = value.toListRef();
      key.add_list(list.size());
      for (const c10::IValue& element : list) {
        if (element.isNone())
          key.add(std::optional<at::Tensor>());
        else
          key.add(element.toTensor());
      }
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
      if (list.size() > Key::kFlagsBit) break;
      uint64_t bits = 0;
      for (size_t i = 0; i < list.size(); ++i) bits |= uint64_t(list[i]) << i;
      return key.add_flags(bits, list.size());
    }
    case ArgKind::kString:
      return key.add(value.toStringView());
    case ArgKind::kDevice:
      return key.add(value.toDevice());
    default:
      // Enumerators are boxed as integers.
      if (value.isInt()) return key.add(at::ScalarType(value.toInt()));
  }
  key.ordinary = false;  // no plan can be found by such a value
}

// torch's operators whose result size depends on numbers have generated
// wrappers. Of other libraries' operators nobody knows, so their numbers are
// part of the key.
NumbersInKey numbers_in_key(std::string_view name) {
  return name.starts_with("aten::") ? NumbersInKey::kNo : NumbersInKey::kYes;
}

// Written while the module is loaded, then only read.
std::map<std::string, Runner>& runners() {
  static auto* const instance = new std::map<std::string, Runner>;
  return *instance;
}

// How many operators were forgotten; the schema of a new one may have the
// address of an old one's. Relaxed: whoever calls an operator has synchronised
// with its registration.
std::atomic<uint64_t> forgotten{0};

std::string full_name(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  return name.name + "." + name.overload_name;
}

// The operators that are registered. Plans refer to one for as long as they
// exist, so that none is deleted.
class Ops {
 public:
  static Ops& get() {
    static auto* const instance = new Ops;
    return *instance;
  }
  const Op& of(const c10::OperatorHandle& handle) {
    const c10::OperatorName& name = handle.operator_name();
    const std::string full = full_name(handle);
    std::lock_guard lock(mutex_);
    const Op*& op = by_name_[full];
    if (!op) {
      const auto own = runners().find(full);
      op = new Op(strdup(name.name.c_str()), strdup(name.overload_name.c_str()),
                  own == runners().end() ? &run_boxed : own->second,
                  numbers_in_key(name.name));
    }
    return *op;
  }
  bool knows(const std::string& full) {
    std::lock_guard lock(mutex_);
    return by_name_.contains(full);
  }
  void forget(const std::string& full, bool leaves) {
    std::lock_guard lock(mutex_);
    if (const auto now = by_name_.extract(full)) {
      earlier_.emplace(full, now.mapped());
      forgotten.fetch_add(1, std::memory_order_relaxed);
    }
    if (!leaves) return;
    const auto [first, last] = earlier_.equal_range(full);
    for (auto at = first; at != last; ++at) at->second->leave();
    earlier_.erase(first, last);
  }

 private:
  struct Departures final : c10::OpRegistrationListener {
    void onOperatorRegistered(const c10::OperatorHandle&) override {}
    void onOperatorDeregistered(const c10::OperatorHandle& handle) override {
      get().forget(full_name(handle), /*leaves=*/true);
    }
  };

  std::mutex mutex_;
  std::map<std::string, const Op*> by_name_;
  // Of operators whose kernels were exchanged; a graph may still have them.
  std::multimap<std::string, const Op*> earlier_;
  // Listens until the process ends.
  const c10::RegistrationHandleRAII listening_ =
      c10::Dispatcher::singleton().addRegistrationListener(
          std::make_unique<Departures>());
};

// One Op per registered operator, until it is forgotten.
const Op& op_of(const c10::OperatorHandle& handle) {
  struct Known {
    const void* schema;
    const Op* op;
  };
  constexpr size_t kKnown = 64;  // a power of two
  constinit thread_local std::array<Known, kKnown> known{};
  constinit thread_local uint64_t of_forgotten = 0;
  const uint64_t now = forgotten.load(std::memory_order_relaxed);
  if (of_forgotten != now) [[unlikely]] {
    known.fill({});
    of_forgotten = now;
  }
  const void* const schema = &handle.schema();
  // Bits that differ between neighbours on the heap.
  Known& entry = known[(reinterpret_cast<uintptr_t>(schema) >> 6) % kKnown];
  if (entry.schema != schema) [[unlikely]]
    entry = {schema, &Ops::get().of(handle)};
  return *entry.op;
}

c10::IValue unbox(const Arg& arg, ArgKind kind) {
  if (arg.tag == Tag::kNone || arg.tag == Tag::kUndefined) return {};
  switch (kind) {
    case ArgKind::kTensor:
      return arg.tensor;
    case ArgKind::kTensorList:
      return arg.tensors;
    case ArgKind::kOptionalTensorList:
      return *arg.optional_tensors;
    case ArgKind::kScalar:
      return arg.scalar;
    case ArgKind::kFloat:
      return arg.real;
    case ArgKind::kScalarList: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const at::Scalar& s : arg.scalars) list.push_back(s);
      return list;
    }
    case ArgKind::kDevice:
      return c10::Device(c10::kCPU);
    case ArgKind::kBool:
      return arg.integer != 0;
    case ArgKind::kInts:
      return arg.ints;
    case ArgKind::kFloats:
      return arg.reals;
    case ArgKind::kBools: {
      c10::List<bool> list;
      for (const int64_t flag : arg.ints) list.push_back(flag != 0);
      return list;
    }
    case ArgKind::kString:
      return arg.text;
    case ArgKind::kInt:
    case ArgKind::kOther:  // an enumerator
      return arg.integer;
    case ArgKind::kGenerator:  // run_boxed() asks the frame
      break;
  }
  return {};
}

// Calls `call` with a stack that holds the operator's arguments and nothing
// else. `stack` may hold other values below them.
void on_top(const Op& op, torch::jit::Stack* stack,
            void (*call)(const Op&, torch::jit::Stack&)) {
  const size_t n = op.schema().kinds.size();
  if (stack->size() == n) return call(op, *stack);
  torch::jit::Stack own(stack->end() - ptrdiff_t(n), stack->end());
  call(op, own);
  stack->resize(stack->size() - n);
  for (c10::IValue& result : own) stack->push_back(std::move(result));
}

// Exchanges the call's arguments for its results: the new ones of the plan, and
// the arguments that were written in place, in the order of the schema.
void exchange(const Op::Schema& schema, c10::SmallVectorImpl<at::Tensor>& outs,
              torch::jit::Stack& stack) {
  size_t next = 0, single = 0;
  for (const Op::Return& r : schema.returns)
    single += r.argument < 0 && !r.is_list;
  c10::SmallVector<c10::IValue, 4> results;
  for (const Op::Return& r : schema.returns) {
    if (r.argument >= 0) {
      results.push_back(stack[size_t(r.argument)]);
    } else if (r.is_list) {
      // There is only one such list (infer()), so it has all tensors but the
      // single results.
      c10::List<at::Tensor> list;
      list.reserve(outs.size() - single);
      for (size_t n = outs.size() - single; n > 0; --n)
        list.push_back(std::move(outs[next++]));
      results.emplace_back(std::move(list));
    } else {
      results.emplace_back(std::move(outs[next++]));
    }
  }
  stack.clear();
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

std::optional<at::Generator> generator_in(const Op::Schema& schema,
                                          const torch::jit::Stack& stack) {
  const auto at =
      std::find(schema.kinds.begin(), schema.kinds.end(), ArgKind::kGenerator);
  return stack[size_t(at - schema.kinds.begin())].toOptional<at::Generator>();
}

// Calls launch(outs, generator). False where that has not launched anything.
template <typename Launch>
bool launch_boxed(const Op& op, torch::jit::Stack& stack, Launch launch) {
  const Op::Schema& schema = op.schema();
  std::optional<at::Generator> generator;
  if (schema.has_generator) [[unlikely]]
    generator = generator_in(schema, stack);
  c10::SmallVector<at::Tensor, 4> outs;
  if (!launch(outs, schema.has_generator ? &generator : nullptr)) [[unlikely]]
    return false;
  exchange(schema, outs, stack);
  return true;
}

}  // namespace

void encode(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  key.reset(&op, op.numbers == NumbersInKey::kYes);
  for (size_t i = 0; i < stack.size(); ++i) add(key, schema.kinds[i], stack[i]);
  if (schema.writes_any) note_overlaps(key, op, stack);
}

bool launch_encoded(const Op& op, Key& key, torch::jit::Stack& stack) {
  return launch_boxed(op, stack, [&](auto& outs, const auto* generator) {
    return launch_known(key, outs, generator);
  });
}

void launch_by(Stream& stream, Plan& plan, const Op& op, Key& key,
               torch::jit::Stack& stack) {
  launch_boxed(op, stack, [&](auto& outs, const auto* generator) {
    launch_planned(stream, plan, key, outs, generator);
    return true;
  });
}

void call_op(const Op& op, torch::jit::Stack& stack) {
  {
    KeyScope scope;
    encode(scope.key, op, stack);
    if (launch_encoded(op, scope.key, stack)) [[likely]]
      return;
  }
  call_cold(op, stack);
}

bool knows_operator(const std::string& name) { return Ops::get().knows(name); }

void forget_operator(const std::string& name) {
  Ops::get().forget(name, /*leaves=*/false);
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
  TORCH_CHECK(!frame.op().has_left(), "npu: ", schema.full_name,
              " was taken away before this call of it could run; synchronize "
              "before a torch.library.Library is destroyed");
  torch::jit::Stack stack;
  stack.reserve(frame.args().size());
  for (size_t i = 0; i < frame.args().size(); ++i) {
    if (schema.kinds[i] == ArgKind::kGenerator)
      stack.push_back(frame.generator(int(i)));
    else
      stack.push_back(unbox(frame.args()[i], schema.kinds[i]));
  }
  // The slow paths of _foreach operators allocate nothing but their results, so
  // they are offered the memory for them. Other kernels may keep memory of
  // their own that happens to have the same size.
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
