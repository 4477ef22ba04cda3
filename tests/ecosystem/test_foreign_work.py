"""Work in a stream's queue of others: functions of Python, C and generated code."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from c_library import compiled, loaded
from doc_examples import example
from held_stream import Held

from tests.ecosystem.both import failed
from tests.graphs.captured import captured

DOCS = Path(__file__).resolve().parents[2] / "docs" / "custom_ops.md"


def test_a_function_runs_in_order_on_views_of_the_memory():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        x, y = torch.ones(2, 3).npu().t(), torch.zeros(3, 2).npu()
        with Held(stream):
            x.mul_(2)
            stream.submit(lambda a, b: b.copy_(a + 1), x, y, writes=[y])
            z = y * 10
            y.zero_()
        assert z.cpu().tolist() == [[30, 30]] * 3
        assert y.cpu().tolist() == [[0, 0]] * 3


def test_memory_given_up_after_the_call_is_not_reused_before_it():
    stream = torch.npu.current_stream()
    seen = []
    with Held():
        x = torch.full((1000,), 7.0).npu()
        stream.submit(lambda a: seen.append(a.sum().item()), x)
        del x
        torch.zeros(1000).npu()
    stream.synchronize()

    assert seen == [7000]


def test_a_host_callback_and_everything_it_holds_is_let_go():
    stream = torch.npu.current_stream()

    class Thing:
        pass

    thing, seen = Thing(), []
    gone = weakref.ref(thing)
    stream.submit(lambda kept=thing: seen.append(type(kept)))
    del thing
    stream.synchronize()
    gc.collect()

    assert seen == [Thing]
    assert gone() is None


def test_an_exception_is_the_streams_asynchronous_error():
    stream, ran = torch.npu.Stream(), []

    def broken(view):
        raise IndexError("too bad")

    x = torch.ones(2).npu()
    torch.npu.synchronize()
    with Held(stream):
        stream.submit(broken, x)
        stream.submit(ran.append)
    with pytest.raises(IndexError) as caught:
        stream.synchronize()

    text = str(caught.value)
    assert "broken failed" in text
    assert "IndexError: " in text and "too bad" in text
    assert text.count(Path(__file__).name) == 2, "where it was raised and launched"
    assert ran == []
    with pytest.raises(RuntimeError, match="too bad"):
        stream.submit(ran.append)
    torch.npu.clear_error(stream)
    stream.submit(lambda: ran.append(1))
    stream.synchronize()
    assert ran == [1]


NO_MEMORY = (MemoryError, torch.OutOfMemoryError)
CLASSES = (
    *(IndexError, ValueError, TypeError, torch.linalg.LinAlgError, NotImplementedError),
    *(KeyError, *NO_MEMORY),
)


@pytest.mark.parametrize("made", [torch.npu.SyncLaunchStream, torch.npu.Stream])
@pytest.mark.parametrize("kind", CLASSES)
def test_an_exception_is_of_the_class_that_the_function_raised(kind, made):
    stream = made()

    def broken():
        raise kind("too bad")

    with pytest.raises(torch.npu.DeviceError, match="too bad") as caught:
        stream.submit(broken)
        stream.synchronize()
    caught_as = {KeyError: (RuntimeError,)}.get(kind, (kind,))
    for one in NO_MEMORY if kind in NO_MEMORY else caught_as:
        assert isinstance(caught.value, one)
    torch.npu.clear_error(stream)


def test_gradients_are_off_inside_a_function():
    stream, seen = torch.npu.Stream(), []
    x = torch.ones(2, device="npu", requires_grad=True)
    stream.wait_stream(torch.npu.current_stream())

    stream.submit(lambda view: seen.append((view * 2).requires_grad), x, writes=[])
    stream.synchronize()

    assert seen == [False]


def test_an_exception_without_a_python_line_keeps_its_text():
    stream = torch.npu.Stream()

    stream.submit([].pop)

    failed(IndexError, "IndexError: pop from empty list", stream)


def test_what_a_failed_stream_drops_is_let_go_too():
    stream, gone = torch.npu.Stream(), []
    before = torch.npu.memory_allocated()
    x = torch.ones(4).npu()
    torch.npu.synchronize()
    with Held(stream):
        stream.submit(lambda: 1 / 0)
        call = lambda view, kept=x: None  # noqa: E731
        gone.append(weakref.ref(call))
        stream.submit(call, x)
        del call, x
    failed(RuntimeError, "division", stream)
    gc.collect()

    assert gone[0]() is None
    assert torch.npu.memory_allocated() == before


def test_waiting_inside_the_queue_is_refused_instead_of_hanging():
    stream = torch.npu.current_stream()
    x = torch.ones(1).npu()

    with Held():
        stream.submit(lambda: x.add(1).item())

    failed(RuntimeError, "cannot wait for npu:0 stream 0", stream)


@pytest.mark.parametrize(
    ("arguments", "writes", "error", "match"),
    [
        ((1,), None, TypeError, "needs a function, but got int"),
        ((print, 2), None, TypeError, "argument 0 is a int; bind"),
        ((print, torch.eye(2).to_sparse()), None, TypeError, "layout torch.sparse"),
        ((print,), [torch.ones(1)], ValueError, "writes names 1 tensor"),
        ((print, torch.ones(1, device="meta")), None, ValueError, "is on meta"),
    ],
)
def test_wrong_arguments(arguments, writes, error, match):
    with pytest.raises(error, match=match):
        torch.npu.current_stream().submit(*arguments, writes=writes)


def test_a_graph_calls_it_at_each_replay_and_lets_go_of_it():
    seen, x = [], torch.zeros(2).npu()

    def see(view):
        seen.append(view.tolist())

    gone, graph = weakref.ref(see), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        torch.npu.current_stream().submit(see, x, writes=[])
        x.mul_(2)
    assert seen == []
    del see
    graph.replay()
    graph.replay()
    torch.npu.synchronize()

    assert seen == [[1, 1], [3, 3]]
    assert gone() is not None
    graph.reset()
    torch.npu.synchronize()
    gc.collect()
    assert gone() is None


def test_an_error_in_a_replay_names_its_node_and_line():
    stream = torch.npu.current_stream
    graph, _ = captured(lambda: stream().submit(lambda: [][1], name="pick"))
    graph.replay()

    failed(IndexError, r"node 0, pick, captured at .*test_foreign_work")


def test_a_stream_without_a_queue_runs_it_at_once():
    stream, seen = torch.npu.SyncLaunchStream(), []
    x = torch.ones(1).npu()
    torch.npu.synchronize()

    stream.submit(seen.append, x)

    assert len(seen) == 1


def test_autograd_notices_what_was_overwritten():
    x = torch.ones(2).npu().requires_grad_()
    y = x.exp()

    torch.npu.current_stream().submit(lambda v: v.zero_(), y.detach())

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_sanitizer_knows_what_it_touches(python):
    code = """
import torch
x = torch.ones(4).npu()
torch.npu.synchronize()
s = torch.npu.Stream()
x.add_(1)
s.submit(lambda v: None, x, writes=[], name="reader")
torch.npu.synchronize()
"""
    done = python(code, check=False, TORCH_NPU_SANITIZER="report")

    assert "reader" in done.stderr
    assert "aten::add_" in done.stderr


@pytest.fixture(scope="module")
def scale_example(tmp_path_factory):
    source = tmp_path_factory.mktemp("c_example") / "scale_example.c"
    source.write_text(example(DOCS, "c"))
    return loaded(compiled(source, "-std=c99", "-O1"))


def test_the_documented_c(scale_example):
    stream = torch.npu.Stream()
    with torch.npu.stream(stream), Held(stream):
        x = torch.ones(5).npu()
        x.add_(1)
        scale_example.scale(stream.npu_stream, x.data_ptr(), x.numel(), 4.0)
        y = x + 1
    stream.synchronize()

    assert y.cpu().tolist() == [9] * 5


def test_an_error_of_c_surfaces_as_the_streams(scale_example):
    stream = torch.npu.Stream()
    x = torch.ones(1).npu()
    torch.npu.synchronize()

    scale_example.scale(stream.npu_stream, x.data_ptr(), 1, 0.0)
    with pytest.raises(ValueError, match="example::scale failed: a scale of 0"):
        stream.synchronize()
    with pytest.raises(RuntimeError, match="a scale of 0"):
        scale_example.scale(stream.npu_stream, x.data_ptr(), 1, 2.0)

    torch.npu.clear_error(stream)
    with pytest.raises(RuntimeError, match="is not a stream"):
        scale_example.scale(1 << 40, x.data_ptr(), 1, 2.0)


def test_the_header_is_also_cpp(tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text('#include "npu_dispatch.h"\nunsigned long n = sizeof(npu_api);')

    compiled(source, "-std=c++11", "-Wextra", "-Wpedantic", compiler="g++")


SOURCE = r"""
#include <Python.h>
#include <stdio.h>
#include "npu_dispatch.h"
/* Words: address, count, what is added. */
static int add(const uint64_t* words, char* error) {
  float* data = (float*)words[0];
  if (words[2] > 100) {
    snprintf(error, NPU_ERROR_TEXT, "%d is too much", (int)words[2]);
    return NPU_STATUS_VALUE_ERROR;
  }
  for (uint64_t i = 0; i < words[1]; ++i) data[i] += words[2];
  return NPU_STATUS_OK;
}
static npu_kernel_handle kernel;
/* make(n_words, size) */
static PyObject* make(PyObject* self, PyObject* args) {
  unsigned n_words, size;
  if (!PyArg_ParseTuple(args, "II", &n_words, &size)) return NULL;
  const npu_api* api = npu_import_api();
  if (!api) return NULL;
  npu_word_buffer buffer = {0, NPU_BUFFER_READ | NPU_BUFFER_WRITE, 4, 1, 0, 0, 0};
  npu_word_kernel of = {size, "tests::add", add, n_words, &buffer, 1, 1};
  if (!size) of.size = sizeof of;
  char error[NPU_ERROR_TEXT];
  if (api->make_word_kernel(&of, &kernel, error) == NPU_STATUS_OK) Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, error);
  return NULL;
}
/* submit(device, address, count, what) */
static PyObject* submit(PyObject* self, PyObject* args) {
  int device;
  unsigned long long w[3];
  if (!PyArg_ParseTuple(args, "iKKK", &device, w, w + 1, w + 2)) return NULL;
  const uint64_t words[3] = {w[0], w[1], w[2]};
  const npu_api* api = npu_import_api();
  char error[NPU_ERROR_TEXT];
  if (api->submit_words(kernel, device, words, error) == NPU_STATUS_OK)
    Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, error);
  return NULL;
}
static PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, NULL}, {"submit", submit, METH_VARARGS, NULL}, {NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "word_kernels", NULL, -1, methods};
PyMODINIT_FUNC PyInit_word_kernels(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    source = tmp_path_factory.mktemp("word_kernels") / "word_kernels.c"
    source.write_text(SOURCE)
    return compiled(source, "-std=c99")


@pytest.fixture
def add(library):
    module = loaded(library)
    module.make(3, 0)

    def call(x, what, device=-1):
        module.submit(device, x.data_ptr(), x.numel(), what)

    return call


def test_tasks_run_in_order_with_copies_of_their_words(add):
    stream, x = torch.npu.Stream(), torch.zeros(4).npu()
    torch.npu.synchronize()

    with torch.npu.stream(stream), Held(stream):
        for what in (1, 2, 3):
            add(x, what)
        x.mul_(10)
        add(x[:1], 7, device=0)
    stream.synchronize()

    assert x.cpu().tolist() == [67, 60, 60, 60]


def test_a_graph_keeps_the_words(add):
    x = torch.zeros(2).npu()
    graph, _ = captured(lambda: add(x, 5))

    assert x.cpu().tolist() == [0, 0]
    graph.replay()
    graph.replay()
    assert x.cpu().tolist() == [10, 10]


def test_a_kernel_that_fails_fails_its_stream_with_its_exception(add):
    x = torch.zeros(2).npu()
    add(x, 101)

    with pytest.raises(ValueError, match=r"tests::add failed: 101 is too much"):
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match="101 is too much"):
        add(x, 1)
    torch.npu.clear_error()


def test_what_is_described_wrongly_is_refused(library):
    module = loaded(library)

    with pytest.raises(RuntimeError, match="names word 1 of 1"):
        module.make(1, 0)
    with pytest.raises(RuntimeError, match=r"npu_word_kernel\.size is 8"):
        module.make(3, 8)


def test_the_sanitizer_knows_what_a_task_touches(python, library):
    code = f"""
import importlib.util, torch
spec = importlib.util.spec_from_file_location("word_kernels", {str(library)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.make(3, 0)
x = torch.ones(200).npu()
torch.npu.synchronize()
s = torch.npu.Stream()
x[100:].add_(1)
with torch.npu.stream(s):
    module.submit(0, x.data_ptr(), LENGTH, 1)
torch.npu.synchronize()
"""
    switch = {"TORCH_NPU_SANITIZER": "report"}

    apart = python(code.replace("LENGTH", "100"), check=False, **switch)
    overlapping = python(code.replace("LENGTH", "101"), check=False, **switch)

    assert "tests::add" not in apart.stderr
    assert "tests::add" in overlapping.stderr
    assert "aten::add_" in overlapping.stderr
