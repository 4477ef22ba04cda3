// A compiled function as a Python callable, and its node in autograd: what
// AOTAutograd's wrappers do in Python at each call and backward.
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/profiler/api.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "csrc/python/bindings.h"
#include "csrc/python/callable_type.h"
#include "csrc/python/def.h"
#include "csrc/python/graph_program.h"
#include "csrc/python/held_gil.h"
#include "csrc/torch/graph_program.h"

namespace py = pybind11;

namespace npu {
namespace {

using Tensors = GraphProgram::Tensors;
namespace autograd = torch::autograd;

// An error that may leave a thread without the GIL.
[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

Tensors tensors_of(PyObject* sequence) {
  THPObjectPtr items(PySequence_Fast(sequence, "a graph returns a sequence"));
  if (!items) throw_python_error();
  Tensors made;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(items.get(), i);
    made.push_back(THPVariable_Check(item) ? THPVariable_Unpack(item)
                                           : at::Tensor());
  }
  return made;
}

// A graph: a program, or a Python callable where it is none or does not take
// its inputs.
class CompiledGraph {
 public:
  explicit CompiledGraph(py::object callable)
      : callable_(std::move(callable)),
        program_(graph_program_of(callable_.ptr())) {}
  ~CompiledGraph() {
    if (!Py_IsInitialized()) {
      callable_.release();  // stays
      return;
    }
    const HeldGil gil;
    callable_ = {};
  }
  CompiledGraph(const CompiledGraph&) = delete;

  // Without gradients or autocast. Any thread may call it, with the GIL or not.
  Tensors operator()(Tensors inputs) const {
    if (program_ && program_->takes(inputs))
      return program_->run(std::move(inputs));
    const c10::AutoGradMode no_gradients(false);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const HeldGil gil;
    THPObjectPtr list(PyList_New(Py_ssize_t(inputs.size())));
    if (!list) throw_python_error();
    for (size_t i = 0; i < inputs.size(); ++i)
      PyList_SET_ITEM(list.get(), Py_ssize_t(i),
                      THPVariable_Wrap(std::move(inputs[i])));
    inputs.clear();
    THPObjectPtr results(PyObject_CallOneArg(callable_.ptr(), list.get()));
    if (!results) throw_python_error();
    return tensors_of(results.get());
  }

 private:
  py::object callable_;
  const GraphProgram* program_;
};

// A gradient has to have these sizes and strides in backward.
struct Tangent {
  size_t result;
  Extents extents;
};

// What all calls of a function have in common. Their nodes share it.
struct Function {
  std::optional<CompiledGraph> forward, backward;  // no backward: inference
  size_t inputs;
  std::vector<size_t> detached;
  // The graph returns the function's results, and then what its backward reads.
  // The last `unchecked` of these may be changed in place.
  std::vector<bool> differentiable;
  size_t unchecked;
  std::vector<Tangent> tangents;
  bool deterministic;    // or made for any algorithms
  bool donates = false;  // backward overwrites what it reads
};

constexpr const char* kTransformed =
    "npu: the backward of a compiled function cannot run inside of vmap, grad "
    "or "
    "vjp; put the transform inside of torch.compile, or leave the function out "
    "of it";
constexpr const char* kDeterministic =
    "npu: torch.use_deterministic_algorithms(True) holds in this backward and "
    "did not when its function was compiled; set it before the first call";
constexpr const char* kDonated =
    "npu: this compiled backward overwrites what its forward saved (donated "
    "buffers), so it runs once: leave out create_graph=True and "
    "retain_graph=True, or set torch._functorch.config.donated_buffer=False";
constexpr const char* kTwice =
    "npu: a function that torch.compile has compiled has no double backward; "
    "leave it uncompiled where second derivatives are needed";

bool is_transformed() {
  return c10::impl::tls_local_dispatch_key_set().included_.has(
      c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

class CompiledBackward : public autograd::Node {
 public:
  explicit CompiledBackward(std::shared_ptr<const Function> function)
      : function_(std::move(function)) {}

  // `given`: what the graph returned.
  void save(const Tensors& given) {
    const size_t unchecked = given.size() - function_->unchecked;
    for (size_t i = function_->differentiable.size(); i < given.size(); ++i) {
      // A view is saved as a tensor of its own, as torch does.
      const at::Tensor& t = given[i];
      const at::Tensor kept = t.defined() && t.is_view() ? t.detach() : t;
      if (i < unchecked)
        saved_.emplace_back(kept,
                            kept.defined() && kept.grad_fn().get() == this);
      else
        unchecked_.push_back(kept);
    }
  }

  std::string name() const override { return "CompiledFunctionBackward"; }
  bool is_aot_backward() const override { return true; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    saved_.clear();
    unchecked_.clear();
    released_ = true;
  }

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    TORCH_CHECK(!is_transformed(), kTransformed);
    TORCH_CHECK(function_->deterministic ||
                    !at::globalContext().deterministicAlgorithms(),
                kDeterministic);
    const bool keep = autograd::get_current_graph_task_keep_graph();
    Tensors inputs = unpack();
    TORCH_CHECK(!keep || !function_->donates, kDonated);
    if (!keep) release_variables();
    for (const Tangent& tangent : function_->tangents)
      inputs.push_back(
          as_expected(std::move(gradients[tangent.result]), tangent));
    gradients.clear();
    autograd::edge_list edges;
    const bool twice = c10::GradMode::is_enabled();
    if (twice) edges = autograd::collect_next_edges(inputs);
    autograd::variable_list made = (*function_->backward)(std::move(inputs));
    if (twice) refuse_backward_of(made, std::move(edges));
    return made;
  }

 private:
  Tensors unpack() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!released_, autograd::ERR_BACKWARD_TWICE);
    Tensors inputs;
    inputs.reserve(saved_.size() + unchecked_.size() + 64);
    for (const autograd::SavedVariable& saved : saved_)
      inputs.push_back(saved.unpack(getptr()));
    inputs.insert(inputs.end(), unchecked_.begin(), unchecked_.end());
    return inputs;
  }

  at::Tensor as_expected(at::Tensor t, const Tangent& tangent) {
    if (!t.defined()) t = input_metadata(tangent.result).zeros_like();
    TORCH_CHECK(!t.key_set().has(c10::DispatchKey::Python),
                "npu: a compiled backward takes no tensor subclass as the "
                "gradient of result ",
                tangent.result, " where its forward returned none");
    if (tangent.extents.match(t)) return t;
    const c10::AutoGradMode no_gradients(false);
    at::Tensor laid_out = at::empty_strided(
        tangent.extents.sizes, tangent.extents.strides, t.options());
    laid_out.copy_(t);
    return laid_out;
  }

  static void refuse_backward_of(const autograd::variable_list& gradients,
                                 autograd::edge_list edges) {
    const auto error =
        c10::make_intrusive<autograd::Error>(kTwice, std::move(edges));
    for (at::Tensor t : gradients)
      if (t.defined() && autograd::isDifferentiableType(t.scalar_type()))
        autograd::create_gradient_edge(t, error);
  }

  const std::shared_ptr<const Function> function_;
  std::vector<autograd::SavedVariable> saved_;
  Tensors unchecked_;
  bool released_ = false;
};

Tensors evaluate(const std::shared_ptr<const Function>& of, Tensors inputs) {
  const c10::AutoGradMode gradients(true);
  for (const size_t i : of->detached) inputs[i] = inputs[i].detach();
  if (!of->backward || std::ranges::none_of(inputs, [](const at::Tensor& t) {
        return t.requires_grad();
      })) {
    Tensors made = (*of->forward)(std::move(inputs));
    made.resize(of->differentiable.size());
    return made;
  }
  // Made before the launches, which are noted as those of the node.
  const auto node = c10::make_intrusive<CompiledBackward>(of);
  node->set_next_edges(autograd::collect_next_edges(inputs));
  Tensors made = (*of->forward)(std::move(inputs));
  for (size_t i = 0; i < of->differentiable.size(); ++i) {
    const bool has_gradient =
        of->differentiable[i] && made[i].defined() &&
        autograd::isDifferentiableType(made[i].scalar_type());
    if (has_gradient)
      autograd::set_history(made[i], node);
    else
      node->add_input_metadata(autograd::Node::undefined_input());
  }
  node->save(made);
  made.resize(of->differentiable.size());
  return made;
}

// The callable.
struct Callable {
  PyObject ob_base;
  vectorcallfunc call;
  std::shared_ptr<Function>* function;
  PyObject* torchs;  // what torch made of the same graphs
  // Returns the graph of backward, or None, and whether it donates; None where
  // that is not known yet. Null: it is known.
  PyObject* prepare;
};

// Whether nobody watches this call, or transforms it.
bool is_plain(const Tensors& inputs, const Function& function) {
  if (inputs.size() != function.inputs || is_transformed() ||
      c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      torch::profiler::impl::profilerEnabled())
    return false;
  return std::ranges::all_of(inputs, [](const at::Tensor& t) {
    return t.defined() && !t.key_set().has(c10::DispatchKey::Python) &&
           !t._fw_grad(/*level=*/0).defined();
  });
}

PyObject* tuple_of(const Tensors& tensors) {
  THPObjectPtr made(PyTuple_New(Py_ssize_t(tensors.size())));
  if (!made) throw python_error();
  for (size_t i = 0; i < tensors.size(); ++i) {
    PyObject* const one = THPVariable_Wrap(tensors[i]);
    if (!one) throw python_error();
    PyTuple_SET_ITEM(made.get(), Py_ssize_t(i), one);
  }
  return made.release();
}

// The graph of backward is compiled when it is first needed.
void look_for_backward(Callable& self) {
  const auto found =
      py::reinterpret_steal<py::object>(PyObject_CallNoArgs(self.prepare));
  if (!found) throw python_error();
  if (found.is_none()) return;
  auto [graph, donates] = found.cast<std::pair<py::object, bool>>();
  (*self.function)->donates = donates;
  if (!graph.is_none()) (*self.function)->backward.emplace(std::move(graph));
  Py_CLEAR(self.prepare);
}

PyObject* call(PyObject* callable, PyObject* const* arguments, size_t count,
               PyObject*) {
  HANDLE_TH_ERRORS
  Callable& self = *reinterpret_cast<Callable*>(callable);
  if (self.prepare) look_for_backward(self);
  if (!self.prepare && PyVectorcall_NARGS(count) == 1 &&
      PyList_Check(arguments[0])) {
    PyObject* const given = arguments[0];
    Tensors inputs = tensors_of(given);
    if (is_plain(inputs, **self.function)) {
      if (PyList_SetSlice(given, 0, PY_SSIZE_T_MAX, nullptr) < 0)
        throw python_error();
      return with_host_memory([&] {
        return tuple_of(evaluate(*self.function, std::move(inputs)));
      });
    }
  }
  return PyObject_Vectorcall(self.torchs, arguments, count, nullptr);
  END_HANDLE_TH_ERRORS
}

void destroy(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  const Callable* const self = reinterpret_cast<Callable*>(object);
  delete self->function;
  Py_DECREF(self->torchs);
  Py_XDECREF(self->prepare);
  PyObject_Free(object);
  Py_DECREF(type);
}

PyTypeObject* callable_type() {
  static auto* const type = make_callable_type<Callable>(
      "npu_dispatch._C.CompiledFunction", &destroy);
  return type;
}

using Sizes = std::vector<int64_t>;

py::object compiled_function(
    py::object torchs, py::object forward, py::object prepare, size_t inputs,
    std::vector<size_t> detached, std::vector<bool> differentiable,
    size_t unchecked,
    const std::vector<std::tuple<size_t, Sizes, Sizes>>& tangents,
    bool deterministic) {
  auto function = std::make_shared<Function>();
  function->forward.emplace(std::move(forward));
  function->inputs = inputs;
  function->detached = std::move(detached);
  function->differentiable = std::move(differentiable);
  function->unchecked = unchecked;
  for (const auto& [result, sizes, strides] : tangents)
    function->tangents.push_back({result, {sizes, strides}});
  function->deterministic = deterministic;
  auto* const made = PyObject_New(Callable, callable_type());
  if (!made) throw python_error();
  made->call = &call;
  made->function = new std::shared_ptr<Function>(std::move(function));
  made->torchs = torchs.release().ptr();
  made->prepare = prepare.release().ptr();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

}  // namespace

void bind_compiled_function(py::module_& m) {
  def(m, "compiled_function", &compiled_function);
}

}  // namespace npu
