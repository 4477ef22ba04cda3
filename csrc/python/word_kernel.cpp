// Kernels of generated code as Python callables: kernel(tensor, 3, tensor).
#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <map>

#include "csrc/host/word_kernel.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/storage_end.h"

namespace py = pybind11;

namespace npu {
namespace {

enum class Kind : uint8_t { kTensor, kInteger, kFloat, kDouble };

struct Parameter {
  Kind kind;
  uint32_t length_word = 0;  // the word for a tensor's reach(); 0: none
};

// What all kernels of a callable have in common. Changed with the GIL held.
struct Recipe {
  std::string name;
  WordKernel::Entry entry;
  uint32_t n_words;
  KernelSize size;
  std::vector<Parameter> parameters;
  std::vector<WordBuffer> buffers;  // of the tensors, in order
  // Kernels for tensors with gaps, by sizes and strides: the kernel does not
  // touch the memory in a gap. Beyond kMostWithGaps of them, gaps count as
  // touched.
  std::map<std::vector<int64_t>, const WordKernel*> with_gaps;

  static constexpr size_t kMostWithGaps = 64;

  const WordKernel* make(const std::vector<WordBuffer>& of) const {
    return new WordKernel(name, entry, n_words, of, size);
  }
};

// The callable. A call takes no lock and no memory. Its kernels live as long as
// the process.
struct Callable {
  PyObject ob_base;
  vectorcallfunc call;
  const WordKernel* kernel;
  Recipe* recipe;
  int device;
};

// The number of elements from the tensor's first to its last, gaps included.
uint64_t reach(const at::Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return uint64_t(last) + 1;
}

// Whether there are elements of the storage between the tensor's own, of which
// an expanded tensor repeats some.
bool has_gaps(const at::Tensor& t, uint64_t reach) {
  uint64_t stored = 1;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.stride(d)) stored *= uint64_t(t.size(d));
  return reach > stored;
}

uint64_t word_of_number(PyObject* argument, Kind kind) {
  if (kind == Kind::kInteger) {
    const long long value = PyLong_AsLongLong(argument);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    return uint64_t(value);
  }
  const double value = PyFloat_AsDouble(argument);
  if (value == -1.0 && PyErr_Occurred()) throw python_error();
  return kind == Kind::kDouble
             ? std::bit_cast<uint64_t>(value)
             : uint64_t(std::bit_cast<uint32_t>(float(value)));
}

uint64_t word_of(const Recipe& recipe, size_t number, PyObject* argument,
                 uint64_t* words, bool& gaps) {
  const Parameter& p = recipe.parameters[number];
  if (p.kind != Kind::kTensor) return word_of_number(argument, p.kind);
  TORCH_CHECK_TYPE(THPVariable_Check(argument),
                   "a compiled kernel expected a tensor, but got ",
                   Py_TYPE(argument)->tp_name);
  const at::Tensor& t = THPVariable_Unpack(argument);
  if (ends_beyond_storage(t)) [[unlikely]]
    raise_beyond_storage(recipe.name, "argument " + std::to_string(number), t);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !t.is_conj() && !t.is_neg(), recipe.name, ": argument ", number,
      " is conjugated or negated lazily, and a compiled kernel reads its "
      "memory "
      "as it is; pass .resolve_conj().resolve_neg() to the compiled function");
  if (p.length_word) {
    words[p.length_word] = reach(t);
    gaps = gaps || has_gaps(t, words[p.length_word]);
  }
  return reinterpret_cast<uint64_t>(t.data_ptr());
}

// The kernel for tensors of which some have gaps.
[[gnu::noinline, gnu::cold]] const WordKernel& kernel_for(
    const Callable& self, PyObject* const* arguments) {
  Recipe& recipe = *self.recipe;
  std::vector<int64_t> layout;
  std::vector<WordBuffer> buffers = recipe.buffers;
  for (WordBuffer& b : buffers) {
    if (!b.length_word) continue;
    const at::Tensor& t = THPVariable_Unpack(arguments[b.word]);
    if (!has_gaps(t, reach(t))) continue;
    b.length_word = 0;
    b.sizes = t.sizes().vec();
    b.strides = t.strides().vec();
    layout.push_back(b.word);
    layout.push_back(t.dim());
    layout.insert(layout.end(), b.sizes.begin(), b.sizes.end());
    layout.insert(layout.end(), b.strides.begin(), b.strides.end());
  }
  const auto known = recipe.with_gaps.find(layout);
  if (known != recipe.with_gaps.end()) return *known->second;
  if (recipe.with_gaps.size() == Recipe::kMostWithGaps) return *self.kernel;
  const WordKernel* const made = recipe.make(buffers);
  recipe.with_gaps.emplace(std::move(layout), made);
  return *made;
}

void launch(const Callable& self, PyObject* const* arguments, size_t given) {
  const std::vector<Parameter>& parameters = self.recipe->parameters;
  TORCH_CHECK_TYPE(given == parameters.size(), self.kernel->name, " takes ",
                   parameters.size(), " arguments, but got ", given);
  Stream& stream = usable_stream(self.device);
  constexpr uint32_t kFew = 64;
  uint64_t few[kFew];
  std::vector<uint64_t> many;
  uint64_t* words = few;
  if (self.kernel->n_words() > kFew) {
    many.resize(self.kernel->n_words());
    words = many.data();
  }
  bool gaps = false;
  for (size_t i = 0; i < given; ++i)
    words[i] = word_of(*self.recipe, i, arguments[i], words, gaps);
  const WordKernel& kernel = gaps ? kernel_for(self, arguments) : *self.kernel;
  bool queued;
  if (stream.waits_for_each_task()) [[unlikely]] {
    // The kernel may run here, after other work that needs the interpreter.
    py::gil_scoped_release no_gil;
    queued = kernel.submit(stream, words);
  } else {
    // A wait for a full queue releases the GIL by itself.
    queued = kernel.submit(stream, words);
  }
  if (!queued) raise_stream_error(stream);
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t count,
               PyObject*) {
  HANDLE_TH_ERRORS
  with_host_memory([&] {
    launch(*reinterpret_cast<Callable*>(self), arguments,
           size_t(PyVectorcall_NARGS(count)));
  });
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// The kernels stay, because tasks and graphs may name them.
void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<Callable*>(self)->recipe;
  PyObject_Free(self);
  Py_DECREF(type);
}

// A vectorcallfunc, so that Python calls it without a tuple of arguments.
PyTypeObject* callable_type() {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET,
                                   offsetof(Callable, call), READONLY, nullptr},
                                  {}};
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&destroy)},
      {Py_tp_members, members},
      {0, nullptr}};
  static PyType_Spec spec = {"npu_dispatch._C.WordKernel",
                             int(sizeof(Callable)), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  static auto* const type =
      reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!type) throw python_error();
  return type;
}

// What npu_dispatch/_C.pyi calls WordParameter.
using Described = std::tuple<std::string, int, std::vector<int64_t>,
                             std::vector<int64_t>, bool>;

py::object word_kernel(const std::string& name, uintptr_t entry, int device,
                       const std::vector<Described>& described,
                       bool one_thread) {
  auto recipe = std::make_unique<Recipe>();
  recipe->name = name;
  recipe->entry = reinterpret_cast<WordKernel::Entry>(entry);
  recipe->size = one_thread ? KernelSize::kSmall : KernelSize::kLarge;
  std::vector<Parameter>& parameters = recipe->parameters;
  uint32_t& n_words = recipe->n_words = uint32_t(described.size());
  for (const auto& [kind, itemsize, sizes, strides, fixed] : described) {
    const auto word = uint32_t(parameters.size());
    if (kind == "int" || kind == "float" || kind == "double") {
      parameters.push_back({kind == "int"     ? Kind::kInteger
                            : kind == "float" ? Kind::kFloat
                                              : Kind::kDouble});
      continue;
    }
    const int access = (kind.find('r') != kind.npos ? NPU_READ : 0) |
                       (kind.find('w') != kind.npos ? NPU_WRITE : 0);
    TORCH_CHECK_VALUE(access, "npu: unknown kind of parameter: ", kind);
    const uint32_t length_word = fixed ? 0 : n_words++;
    parameters.push_back({Kind::kTensor, length_word});
    recipe->buffers.push_back({word, uint32_t(itemsize), uint8_t(access), sizes,
                               strides, length_word});
  }
  auto* const made = PyObject_New(Callable, callable_type());
  if (!made) throw python_error();
  made->call = &call;
  made->kernel = recipe->make(recipe->buffers);
  made->recipe = recipe.release();
  made->device = device;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

}  // namespace

void bind_word_kernel(py::module_& m) {
  def(m, "word_kernel", &word_kernel);
  m.attr("SMALL_LOOP") = kSmallLoop;
}

}  // namespace npu
