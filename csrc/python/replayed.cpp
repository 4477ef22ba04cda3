// A captured function as a Python callable: it takes inputs, replays the graph
// and returns results.
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/graph.h"

namespace py = pybind11;

namespace npu {
namespace {

bool is_tensor(PyObject* object) { return THPVariable_Check(object); }

const at::Tensor& tensor_of(PyObject* object) {
  return THPVariable_Unpack(object);
}

// The graph reads some inputs in place and others from its own copies, and
// writes its results to the same memory each time. The calling thread holds the
// GIL.
class Replayed {
 public:
  // `inputs`: those of the capture. `copied`: the indices of those that the
  // graph reads from tensors of its own, which `inputs` already has. `results`:
  // what the capture returned. Nobody else may hold the memory of the results
  // any more.
  Replayed(py::object graph, int device, int64_t stream, const py::list& inputs,
           const std::vector<size_t>& copied, const py::list& results)
      : holder_(std::move(graph)),
        graph_(holder_.cast<Graph&>()),
        device_(device),
        stream_(stream),
        count_(inputs.size()) {
    std::vector<bool> is_copied(count_);
    for (const size_t i : copied) is_copied.at(i) = true;
    std::vector<const void*> givens;  // storages that are not overwritten
    for (size_t i = 0; i < count_; ++i) {
      PyObject* const object = inputs[i].ptr();
      if (!is_tensor(object)) {
        numbers_.push_back({i, py::reinterpret_borrow<py::object>(object)});
      } else if (is_copied[i]) {
        copied_.push_back({i, tensor_of(object)});
      } else {
        const at::Tensor& t = tensor_of(object);
        fixed_.push_back({i, t.const_data_ptr()});
        givens.push_back(t.storage().data());
      }
    }
    for (const py::handle result : results) {
      results_.push_back(
          is_tensor(result.ptr())
              ? Result{tensor_of(result.ptr()), py::object()}
              : Result{{}, py::reinterpret_borrow<py::object>(result)});
    }
    for (const Result& r : results_) {
      if (!r.tensor.defined() || !r.tensor.has_storage()) continue;
      // A result that is an input, or a view of one, belongs to the caller.
      if (std::find(givens.begin(), givens.end(), r.tensor.storage().data()) ==
          givens.end())
        written_.push_back({r.tensor.storage(), 0});
    }
    for (Written& w : written_) w.owners = w.storage.use_count();
  }

  // Whether these inputs are where the graph reads those that it does not copy.
  bool reads(const py::list& given) const {
    if (given.size() != count_) return false;
    for (const Fixed& f : fixed_) {
      PyObject* const now = PyList_GET_ITEM(given.ptr(), Py_ssize_t(f.index));
      if (!is_tensor(now) || tensor_of(now).const_data_ptr() != f.address)
        return false;
    }
    return true;
  }

  // Whether nobody holds a result of the last replay any more.
  bool is_free() const {
    for (const Written& w : written_)
      if (w.storage.use_count() > w.owners) return false;
    return true;
  }

  // Returns the results and clears `given`; None, with nothing done, where the
  // graph is not for these inputs or its results are in use.
  py::object call(const py::list& given) {
    Stream& stream = current_stream(device_);
    if (stream.id() != stream_ || stream.sink() || !reads(given) ||
        !fits(given))
      return py::none();
    if (!is_free()) return py::none();
    {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      for (const Copied& c : copied_) {
        const at::Tensor& from = tensor_of(item(given, c.index));
        if (from.const_data_ptr() != c.to.const_data_ptr()) c.to.copy_(from);
      }
    }
    // The inputs may hold the memory of results.
    if (PyList_SetSlice(given.ptr(), 0, PY_SSIZE_T_MAX, nullptr) < 0)
      throw py::error_already_set();
    if (graph_.one_stream()) {
      replay(graph_);
    } else {
      // It takes a lock that other threads hold while they wait for space in a
      // queue.
      py::gil_scoped_release release;
      replay(graph_);
    }
    py::list results(results_.size());
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      PyObject* const made = r.tensor.defined()
                                 ? THPVariable_Wrap(r.tensor.variable_data())
                                 : py::object(r.other).release().ptr();
      if (!made) throw py::error_already_set();
      PyList_SET_ITEM(results.ptr(), Py_ssize_t(i), made);
    }
    return results;
  }

 private:
  struct Fixed {
    size_t index;
    const void* address;
  };
  struct Copied {
    size_t index;
    at::Tensor to;
  };
  struct Number {
    size_t index;
    py::object value;
  };
  struct Result {
    at::Tensor tensor;
    py::object other;  // the result, where it is no tensor
  };
  struct Written {
    c10::Storage storage;
    size_t owners;  // of the storage while nobody holds a result
  };

  static PyObject* item(const py::list& of, size_t i) {
    return PyList_GET_ITEM(of.ptr(), Py_ssize_t(i));
  }

  bool fits(const py::list& given) const {
    for (const Copied& c : copied_) {
      PyObject* const now = item(given, c.index);
      if (!is_tensor(now)) return false;
      const at::Tensor& t = tensor_of(now);
      if (t.sizes() != c.to.sizes() || t.strides() != c.to.strides() ||
          t.scalar_type() != c.to.scalar_type() || t.device() != c.to.device())
        return false;
    }
    for (const Number& n : numbers_) {
      const int equal =
          PyObject_RichCompareBool(item(given, n.index), n.value.ptr(), Py_EQ);
      if (equal < 0) throw py::error_already_set();
      if (!equal) return false;
    }
    return true;
  }

  py::object holder_;
  Graph& graph_;
  int device_;
  int64_t stream_;
  size_t count_;
  std::vector<Fixed> fixed_;
  std::vector<Copied> copied_;
  std::vector<Number> numbers_;
  std::vector<Result> results_;
  std::vector<Written> written_;
};

}  // namespace

void bind_replayed(py::module_& m) {
  py::class_<Replayed> replayed(m, "Replayed");
  def_init<py::object, int, int64_t, const py::list&,
           const std::vector<size_t>&, const py::list&>(replayed)
      .def("reads", &Replayed::reads)
      .def("is_free", &Replayed::is_free)
      .def("__call__", wrapped([](Replayed& replayed, const py::list& given) {
             return replayed.call(given);
           }));
}

}  // namespace npu
