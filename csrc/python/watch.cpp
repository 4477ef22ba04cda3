// Finds out whether dicts and lists still hold what they held. They are the
// Python state from which a captured program was made.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <vector>

#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/device.h"

namespace py = pybind11;

namespace npu {
namespace {

// Whether a backward calls something for the tensor's gradient, other than to
// accumulate it. A hook of the node that accumulates counts after its removal,
// too: it leaves an empty dictionary of torch's behind, which cannot be told
// from a full one here.
bool is_hooked(PyObject* value, const at::Tensor& t) {
  const auto holds_any = [](PyObject* hooks) {
    return hooks && hooks != Py_None && PyObject_IsTrue(hooks) != 0;
  };
  const auto* const variable = reinterpret_cast<THPVariable*>(value);
  if (holds_any(variable->backward_hooks) ||
      holds_any(variable->post_accumulate_grad_hooks))
    return true;
  namespace impl = torch::autograd::impl;
  // One of these calls Python's, which an empty dictionary may be.
  if (impl::hooks(t).size() > size_t(variable->backward_hooks != nullptr))
    return true;
  const auto node = impl::try_get_grad_accumulator(t);
  return node && (!node->pre_hooks().empty() || !node->post_hooks().empty());
}

// What is remembered of a tensor: where it is, whether it requires a gradient,
// and whether hooks hear of that. A graph reads tensors of the device in place,
// but contains the values of others; so for those, the version counts, too.
struct TensorState {
  const void* address = nullptr;
  bool requires_grad = false;
  bool hooked = false;
  uint32_t version = 0;  // of a tensor that is not on the device
  bool operator==(const TensorState&) const = default;
};

TensorState state_of(PyObject* value) {
  if (!THPVariable_Check(value)) return {};
  const at::Tensor& t = THPVariable_Unpack(value);
  TensorState s;
  s.requires_grad = t.requires_grad();
  s.hooked = s.requires_grad && is_hooked(value, t);
  const bool strided = t.layout() == at::kStrided;
  if (strided && t.has_storage()) s.address = t.unsafeGetTensorImpl()->data();
  if (t.device().type() != kNpu && !t.is_inference()) s.version = t._version();
  return s;
}

// Whether two objects are one, or the same number, text or tuple to the bit.
bool is_same(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a))
    return std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(a)) ==
           std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(b));
  if (PyTuple_CheckExact(a)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(a);
    if (size != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < size; ++i)
      if (!is_same(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i)))
        return false;
    return true;
  }
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a)) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

struct Item {
  PyObject* key;  // null in a list
  PyObject* value;
  TensorState state;
  bool ignored = false;

  bool holds(PyObject* now) const {
    if (ignored) return true;
    return is_same(now, value) && state == state_of(now);
  }
};

// An attribute of the Python object keeps the watched objects alive, so that
// the garbage collector sees them; here they are borrowed.
class Watch {
 public:
  // Containers, and the keys in each whose values may change.
  explicit Watch(const std::vector<std::pair<py::object, py::set>>& watched) {
    for (const auto& [container, ignored] : watched)
      add(container.ptr(), ignored);
  }

  // Returns the index of the first container that differs, and the key of the
  // item that differs in it, or None as the key where the number or order of
  // items does.
  py::object difference() const {
    for (size_t i = 0; i < containers_.size(); ++i) {
      PyObject* key = nullptr;
      if (!same(containers_[i], key)) return place(i, key);
    }
    return py::none();
  }

  // The same for the first tensor that had a hook when the watch was made.
  py::object hooked() const {
    for (size_t i = 0; i < containers_.size(); ++i)
      for (const Item& item : containers_[i].items)
        if (item.state.hooked) return place(i, item.key);
    return py::none();
  }

 private:
  static py::object place(size_t container, PyObject* key) {
    return py::make_tuple(
        container, py::reinterpret_borrow<py::object>(key ? key : Py_None));
  }

  struct Container {
    PyObject* object;
    std::vector<Item> items;
  };

  void add(PyObject* object, const py::set& ignored) {
    Container& c = containers_.emplace_back(Container{object, {}});
    if (PyList_Check(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
        PyObject* const value = PyList_GET_ITEM(object, i);
        c.items.push_back({nullptr, value, state_of(value)});
      }
      return;
    }
    TORCH_CHECK_TYPE(PyDict_Check(object), "a watch takes dicts and lists");
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value))
      c.items.push_back({key, value, state_of(value),
                         PyUnicode_CheckExact(key) && ignored.contains(key)});
  }

  static bool same(const Container& c, PyObject*& different) {
    if (PyList_Check(c.object)) {
      if (size_t(PyList_GET_SIZE(c.object)) != c.items.size()) return false;
      for (size_t i = 0; i < c.items.size(); ++i)
        if (!c.items[i].holds(PyList_GET_ITEM(c.object, Py_ssize_t(i))))
          return false;
      return true;
    }
    if (size_t(PyDict_GET_SIZE(c.object)) != c.items.size()) return false;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (const Item& item : c.items) {
      if (!PyDict_Next(c.object, &at, &key, &value)) return false;
      if (key != item.key) return false;
      if (!item.holds(value)) {
        different = key;
        return false;
      }
    }
    return true;
  }

  std::vector<Container> containers_;
};

}  // namespace

void bind_watch(py::module_& m) {
  py::class_<Watch> watch(m, "Watch", py::dynamic_attr());
  def_init<const std::vector<std::pair<py::object, py::set>>&>(watch)
      .def("difference", &Watch::difference)
      .def("hooked", &Watch::hooked);
}

}  // namespace npu
