// A captured function as a Python callable: it takes inputs, replays the graph
// and returns results.
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/graph.h"
#include "csrc/torch/replay_results.h"

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
  Replayed(py::object graph, int64_t stream, const py::list& inputs,
           const std::vector<size_t>& copied, const py::list& results)
      : holder_(std::move(graph)),
        graph_(holder_.cast<Graph&>()),
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
      if (!is_tensor(result.ptr())) {
        results_.push_back({{}, py::reinterpret_borrow<py::object>(result), 0});
        continue;
      }
      const at::Tensor& t = tensor_of(result.ptr());
      const auto same = std::ranges::find_if(
          results_, [&](const Result& r) { return r.tensor.is_same(t); });
      results_.push_back({t, {}, size_t(same - results_.begin())});
    }
    std::vector<c10::Storage> written;
    for (const Result& r : results_) {
      if (!r.tensor.defined() || !r.tensor.has_storage()) continue;
      // A result that is an input, or a view of one, belongs to the caller.
      if (std::ranges::find(givens, r.tensor.storage().data()) == givens.end())
        written.push_back(r.tensor.storage());
    }
    kept_.emplace(*graph_.body()->overwrites, std::move(written));
    // An input that another graph has returned, and that nobody needs after the
    // call: of a saved tensor, backward makes memory for its own results. With
    // two inputs in one storage, who holds them is not known.
    const std::vector<ByteRange> changed = bytes_of(*graph_.body(), NPU_WRITE);
    for (const void* const given : givens) {
      const auto lo = reinterpret_cast<uintptr_t>(given);
      if (std::ranges::count(givens, given) == 1 && meet(changed, lo, lo + 1))
        given_up_.push_back(given);
    }
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

  // Returns the results and clears `given`; None, with nothing done, where the
  // graph is not for these inputs or somebody holds what it overwrites.
  py::object call(const py::list& given) {
    Stream& stream = current_stream(graph_.device());
    if (stream.id() != stream_ || stream.sink() || !reads(given) ||
        !fits(given))
      return py::none();
    // A thread whose turn it is may wait for the GIL.
    const std::unique_lock lock =
        lock_released(graph_.body()->overwrites->memory().turn);
    Overwrites& overwrites = *graph_.body()->overwrites;
    if (overwrites.any_held(given_up_)) return py::none();
    overwrites.wait_for_borrowers(stream);
    // A block's own stream is never noted as a borrower, and that of a result
    // is the capture's, which a user's stream may be, too.
    for (const Lane& lane : graph_.body()->lanes)
      if (lane.stream != &stream && !lane.stream->idle())
        stream.wait_for(*lane.stream, lane.stream->tail());
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
    replay_graph(graph_);
    py::list results(results_.size());
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      PyObject* made;
      if (!r.tensor.defined())
        made = py::object(r.other).release().ptr();
      else if (r.first < i)  // the same object, with the same version counter
        made = Py_NewRef(item(results, r.first));
      else
        made = THPVariable_Wrap(r.tensor.variable_data());
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
    size_t first;      // the first result that is the same tensor
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
  int64_t stream_;
  size_t count_;
  std::vector<Fixed> fixed_;
  std::vector<Copied> copied_;
  std::vector<Number> numbers_;
  std::vector<Result> results_;
  std::vector<const void*> given_up_;  // storages of inputs that it overwrites
  std::optional<ReplayResults> kept_;
};

}  // namespace

void bind_replayed(py::module_& m) {
  py::class_<Replayed> replayed(m, "Replayed");
  def_init<py::object, int64_t, const py::list&, const std::vector<size_t>&,
           const py::list&>(replayed)
      .def("reads", &Replayed::reads)
      .def("__call__", wrapped([](Replayed& replayed, const py::list& given) {
             return replayed.call(given);
           }));
}

}  // namespace npu
