// Completion ports: they tell an event loop that a stream has reached a number.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <unordered_map>

#include "csrc/engine/engine.h"
#include "csrc/observe/observer.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace py = pybind11;

namespace npu {
namespace {

// The Python exception for `error`, without raising it.
py::object as_exception(const StreamError& error) {
  try {
    raise_error(error);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
  py::error_already_set raised;
  return py::object(raised.value());
}

class Port {
 public:
  Port() : port_(CompletionPort::make()) {}
  ~Port() { port_->release(); }
  Port(const Port&) = delete;

  int fileno() const { return port_->fd(); }
  uint64_t wake_ups() const { return port_->wake_ups(); }

  bool add(int device, int64_t id, uint64_t number, uint64_t token) {
    Stream& stream = stream_at(device, id);
    if (stream.notify(number, *port_, token)) {
      if (observed(Observer::kTasks)) {
        awaited_[token] = &stream;
        py::gil_scoped_release no_gil;
        tell_observers(&Observer::host_awaits, stream, number);
      }
      return true;
    }
    tell_observers(&Observer::host_waited, stream, number);
    if (const auto error = error_before(stream, number)) raise_error(*error);
    return false;
  }

  // Removes the futures of completions from `futures` and resolves them. In
  // Python, that loop would take half the time between the descriptor and the
  // coroutine (bench/aio.py).
  bool resolve(py::dict futures, size_t most) {
    static const py::handle done = py::str("done").release(),
                            set_result = py::str("set_result").release();
    while (most-- > 0) {
      const auto completion = next();
      if (!completion) break;
      const py::int_ token(completion->token);
      const py::object future = futures[token];
      if (PyDict_DelItem(futures.ptr(), token.ptr()))
        throw py::error_already_set();
      const auto is_done = py::reinterpret_steal<py::object>(
          PyObject_CallMethodNoArgs(future.ptr(), done.ptr()));
      if (!is_done) throw py::error_already_set();
      if (is_done.is(py::bool_(true))) continue;  // cancelled
      if (completion->error) {
        future.attr("set_exception")(as_exception(*completion->error));
        continue;
      }
      const auto none = py::reinterpret_steal<py::object>(
          PyObject_CallMethodOneArg(future.ptr(), set_result.ptr(), Py_None));
      if (!none) throw py::error_already_set();
    }
    return port_->left_over();
  }

 private:
  CompletionPtr next() {
    auto completion = port_->take();
    if (completion && !awaited_.empty()) [[unlikely]]
      if (const auto at = awaited_.extract(completion->token); at)
        tell_observers(&Observer::host_waited, *at.mapped(),
                       completion->number);
    return completion;
  }

  CompletionPort* const port_;
  // The streams whose completions are on their way, by token, for an observer.
  std::unordered_map<uint64_t, Stream*> awaited_;
};

// The floor for bench/aio.py: a task that notes the time and writes to a file
// descriptor, without a completion port between it and the loop.
int run_write(const npu_kernel*, const uint64_t* words, npu_failure*) {
  *reinterpret_cast<uint64_t*>(words[1]) = now_ns();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(int(words[0]), &one, sizeof one);
  return NPU_OK;
}
const npu_kernel kWrite{run_write, "write", nullptr, 0, NPU_KERNEL_ON_HOST};

void submit_write(int fd, uint64_t time_address) {
  static const PublishedNames names{kWrite.name};
  Stream& stream = usable_stream(current_device());
  Submission s;
  if (!stream.begin(2, s, call_site())) raise_stream_error(stream);
  s.task->kernel = &kWrite;
  s.words[0] = uint64_t(fd);
  s.words[1] = time_address;
  stream.commit(s);
  stream.after_commit(s);
}

// Where an event was recorded: (device, stream, number), or None.
py::object event_point(int64_t id) {
  const Event* event = event_at(id);
  if (!event) return py::none();
  const Stream& stream = *event->stream();
  return py::make_tuple(stream.device(), stream.id(), event->number());
}

}  // namespace

void bind_aio(py::module_& m) {
  py::class_<Port> port(m, "CompletionPort");
  def_init(port)
      .def("fileno", &Port::fileno)
      .def("add", wrapped([](Port& port, int device, int64_t id,
                             uint64_t number, uint64_t token) {
             return port.add(device, id, number, token);
           }))
      .def("resolve", wrapped([](Port& port, py::dict futures, size_t most) {
             return port.resolve(std::move(futures), most);
           }))
      .def_property_readonly("wake_ups", &Port::wake_ups);
  def(m, "event_point", &event_point);
  def(m, "submit_write", &submit_write);
  m.def("stream_tail", wrapped([](int device, int64_t id) {
          return stream_at(device, id).tail();
        }));
  // How much each stream made so far has been given: (device, stream, number).
  m.def("device_tails", wrapped([](int device) {
          check_usable(device);
          py::list tails;
          for (const Stream* s : streams(device))
            tails.append(py::make_tuple(device, s->id(), s->tail()));
          return tails;
        }));
  // The other stream may not have been given so many tasks yet: in this way
  // tests and benchmarks hold a stream until they submit to the other.
  m.def("stream_wait", wrapped([](int device, int64_t id, int other_device,
                                  int64_t other_id, uint64_t number) {
          Stream& stream = stream_at(device, id);
          if (!stream.wait_for(stream_at(other_device, other_id), number))
            raise_stream_error(stream);
        }));
  m.def("stream_retired", wrapped([](int device, int64_t id) {
          return stream_at(device, id).retired().value();
        }));
}

}  // namespace npu
