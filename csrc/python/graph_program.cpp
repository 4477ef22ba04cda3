// Programs of compiled graphs as Python callables, which take a list of inputs
// and clear it.
#include "csrc/torch/graph_program.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/object_ptr.h>

#include <memory>
#include <string>

#include "csrc/python/bindings.h"
#include "csrc/python/callable_type.h"
#include "csrc/python/def.h"
#include "csrc/python/graph_program.h"
#include "csrc/python/word_kernel.h"

namespace py = pybind11;

namespace npu {
namespace {

// The callable. What it cannot run, the Python program does.
struct Callable {
  PyObject ob_base;
  vectorcallfunc call;
  const GraphProgram* program;
  PyObject* written;  // the Python program
};

PyObject* run(const Callable& self, PyObject* given) {
  GraphProgram::Tensors inputs;
  const Py_ssize_t count = PyList_GET_SIZE(given);
  inputs.reserve(size_t(count) + 64);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const object = PyList_GET_ITEM(given, i);
    inputs.push_back(THPVariable_Check(object) ? THPVariable_Unpack(object)
                                               : at::Tensor());
  }
  if (!self.program->takes(inputs)) return nullptr;
  if (PyList_SetSlice(given, 0, PY_SSIZE_T_MAX, nullptr) < 0)
    throw python_error();
  const GraphProgram::Tensors results = self.program->run(std::move(inputs));
  THPObjectPtr made(PyTuple_New(Py_ssize_t(results.size())));
  if (!made) throw python_error();
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject* const result = THPVariable_Wrap(results[i]);
    if (!result) throw python_error();
    PyTuple_SET_ITEM(made.get(), Py_ssize_t(i), result);
  }
  return made.release();
}

PyObject* call(PyObject* callable, PyObject* const* arguments, size_t count,
               PyObject*) {
  HANDLE_TH_ERRORS
  const Callable& self = *reinterpret_cast<Callable*>(callable);
  if (PyVectorcall_NARGS(count) == 1 && PyList_Check(arguments[0])) {
    PyObject* const results =
        with_host_memory([&] { return run(self, arguments[0]); });
    if (results) return results;
  }
  return PyObject_Vectorcall(self.written, arguments, count, nullptr);
  END_HANDLE_TH_ERRORS
}

void destroy(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  const Callable* const self = reinterpret_cast<Callable*>(object);
  delete self->program;
  Py_DECREF(self->written);
  PyObject_Free(object);
  Py_DECREF(type);
}

PyTypeObject* callable_type() {
  static auto* const type = make_callable_type<Callable>(
      "npu_dispatch._C.GraphProgram", &destroy,
      {"written", T_OBJECT_EX, offsetof(Callable, written), READONLY, nullptr});
  return type;
}

using Sizes = std::vector<int64_t>;

Extents extents(const py::handle& sizes, const py::handle& strides) {
  return {sizes.cast<Sizes>(), strides.cast<Sizes>()};
}

uint32_t number(const py::handle& of) { return of.cast<uint32_t>(); }

// Reads the arguments of a launch or a call: pairs of whether it is a slot, and
// the slot or the value.
template <typename F>
std::vector<GraphProgram::Use> read(const py::list& arguments, F&& constant) {
  std::vector<GraphProgram::Use> tensors;
  uint32_t at = 0;
  for (const py::handle argument : arguments) {
    const auto pair = argument.cast<py::tuple>();
    if (pair[0].cast<bool>()) {
      tensors.push_back({at, number(pair[1])});
      constant(at, nullptr);
    } else {
      constant(at, py::object(pair[1]).ptr());
    }
    ++at;
  }
  return tensors;
}

void add_launch(GraphProgram& program, int device, const py::tuple& step) {
  std::vector<PyObject*> numbers;
  auto tensors = read(step[2].cast<py::list>(), [&](uint32_t, PyObject* value) {
    numbers.push_back(value);
  });
  FixedLaunch launch = fixed_launch(py::object(step[1]).ptr(), device, numbers);
  program.launch(*launch.kernel, std::move(launch.words), std::move(tensors));
}

void add_call(GraphProgram& program, const py::tuple& step) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      step[1].cast<std::string>().c_str(), step[2].cast<std::string>().c_str());
  const auto& parameters = op.schema().arguments();
  torch::jit::Stack stack;
  auto tensors =
      read(step[3].cast<py::list>(), [&](uint32_t at, PyObject* value) {
        stack.push_back(value ? torch::jit::toIValue(value,
                                                     parameters.at(at).type(),
                                                     parameters.at(at).N())
                              : c10::IValue());
      });
  TORCH_CHECK_VALUE(stack.size() == parameters.size(), "npu: ", op.schema(),
                    " takes ", parameters.size(), " arguments");
  program.call(op, std::move(stack), std::move(tensors),
               step[4].cast<std::vector<uint32_t>>());
}

void add(GraphProgram& program, int device, const py::tuple& step) {
  const auto kind = step[0].cast<std::string>();
  if (kind == "empty") {
    const auto* const dtype =
        reinterpret_cast<THPDtype*>(py::object(step[4]).ptr());
    program.allocate(number(step[1]), extents(step[2], step[3]),
                     dtype->scalar_type);
  } else if (kind == "view") {
    program.view(number(step[1]), number(step[2]), extents(step[3], step[4]),
                 step[5].cast<int64_t>());
  } else if (kind == "expect") {
    program.expect(number(step[1]), extents(step[2], step[3]));
  } else if (kind == "check") {
    program.check(number(step[1]), extents(step[2], step[3]));
  } else if (kind == "launch") {
    add_launch(program, device, step);
  } else if (kind == "call") {
    add_call(program, step);
  } else {
    TORCH_CHECK_VALUE(kind == "drop", "npu: no such step: ", kind);
    program.drop(number(step[1]));
  }
}

py::object graph_program(py::object written, int device, size_t inputs,
                         size_t slots, const py::list& steps,
                         std::vector<int> results) {
  auto program = std::make_unique<GraphProgram>(device, inputs, slots);
  for (const py::handle step : steps)
    add(*program, device, step.cast<py::tuple>());
  program->give(std::move(results));
  auto* const made = PyObject_New(Callable, callable_type());
  if (!made) throw python_error();
  made->call = &call;
  made->program = program.release();
  made->written = written.release().ptr();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

}  // namespace

const GraphProgram* graph_program_of(PyObject* callable) {
  return Py_TYPE(callable) == callable_type()
             ? reinterpret_cast<Callable*>(callable)->program
             : nullptr;
}

void bind_graph_program(py::module_& m) {
  def(m, "graph_program", &graph_program);
}

}  // namespace npu
