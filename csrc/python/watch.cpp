// Finds out whether dicts and lists still hold what they held. They are the
// Python state from which a captured program was made.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/device.h"

namespace py = pybind11;

namespace npu {
namespace {

// What is remembered of a tensor: where it is and whether it requires a
// gradient. A graph reads tensors of the device in place, but contains the
// values of others; so for those, the version counts, too.
struct TensorState {
  const void* address = nullptr;
  bool requires_grad = false;
  uint32_t version = 0;  // of a tensor that is not on the device
  bool operator==(const TensorState&) const = default;
};

TensorState state_of(PyObject* value) {
  if (!THPVariable_Check(value)) return {};
  const at::Tensor& t = THPVariable_Unpack(value);
  TensorState s;
  s.requires_grad = t.requires_grad();
  const bool strided = t.layout() == at::kStrided;
  if (strided && t.has_storage()) s.address = t.unsafeGetTensorImpl()->data();
  if (t.device().type() != kNpu && !t.is_inference()) s.version = t._version();
  return s;
}

// Whether it is a number, text or tuple. Another object with an equal value
// counts as unchanged.
bool is_plain(PyObject* value) {
  return PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
         PyUnicode_CheckExact(value) || PyTuple_CheckExact(value);
}

struct Item {
  PyObject* key;  // null in a list
  PyObject* value;
  TensorState state;
  bool ignored = false;

  bool holds(PyObject* now) const {
    if (ignored) return true;
    if (now != value) {
      if (!is_plain(now) || Py_TYPE(now) != Py_TYPE(value)) return false;
      const int equal = PyObject_RichCompareBool(now, value, Py_EQ);
      if (equal < 0) PyErr_Clear();
      return equal == 1;
    }
    return state == state_of(now);
  }
};

// An attribute of the Python object keeps the watched objects alive, so that
// the garbage collector sees them; here they are borrowed.
class Watch {
 public:
  Watch(const py::list& containers, const py::set& ignored) {
    for (const py::handle container : containers) add(container.ptr(), ignored);
  }

  // Returns the index of the first container that differs, and the key of the
  // item that differs in it, or None as the key where the number or order of
  // items does.
  py::object difference() const {
    for (size_t i = 0; i < containers_.size(); ++i) {
      PyObject* key = nullptr;
      if (!same(containers_[i], key))
        return py::make_tuple(
            i, key ? py::reinterpret_borrow<py::object>(key) : py::none());
    }
    return py::none();
  }

  bool intact() const {
    PyObject* key = nullptr;
    for (const Container& c : containers_)
      if (!same(c, key)) return false;
    return true;
  }

 private:
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
  def_init<const py::list&, const py::set&>(watch)
      .def("intact", &Watch::intact)
      .def("difference", &Watch::difference);
}

}  // namespace npu
