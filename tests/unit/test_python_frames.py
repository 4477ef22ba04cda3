"""Both ways to read the interpreter's frames see what Python itself sees.

python_frames.cpp reads the frames of interpreters whose layout it knows, and asks
the public API of others. Here it is compiled both ways into a module of its own.
"""

import sys
from pathlib import Path

import pytest
from c_library import compiled, loaded

ROOT = Path(__file__).parents[2]
MODULE = r"""
#include "csrc/python/python_frames.h"

static PyObject* stack(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (const npu::PythonFrame& f : npu::python_frames(PyThreadState_Get())) {
    auto* code = reinterpret_cast<PyCodeObject*>(f.code);
    PyObject* entry = Py_BuildValue(
        "(Oi)", f.code, PyCode_Addr2Line(code, f.byte_offset));
    PyList_Append(list, entry);
    Py_DECREF(entry);
  }
  return list;
}
static PyObject* hash(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(npu::hash_python_stack(PyThreadState_Get()));
}
static PyObject* hash_without_gil(PyObject*, PyObject*) {
  PyThreadState* const thread = PyThreadState_Get();
  uint64_t found;
  Py_BEGIN_ALLOW_THREADS
  found = npu::hash_python_stack(thread);
  Py_END_ALLOW_THREADS
  return PyLong_FromUnsignedLongLong(found);
}
static PyMethodDef methods[] = {
    {"stack", stack, METH_NOARGS, nullptr},
    {"hash", hash, METH_NOARGS, nullptr},
    {"hash_without_gil", hash_without_gil, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "frames", nullptr, -1, methods,
                             nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit_frames() { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module", params=["known", "public"])
def frames(request, tmp_path_factory):
    source = tmp_path_factory.mktemp(request.param) / "frames.cpp"
    source.write_text(MODULE)
    flags = ["-std=c++20", "-Wextra", f"-I{ROOT}"]
    if request.param == "public":
        flags.append("-DNPU_PUBLIC_FRAMES")
    reader = str(ROOT / "csrc/python/python_frames.cpp")
    return loaded(compiled(source, *flags, reader, compiler="c++"))


def stack_by_python():
    """Return what sys._getframe() says of the caller, its own line left out."""
    frame = sys._getframe(1)
    found = []
    while frame is not None and len(found) < 32:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def deep(depth, then):
    return then() if depth == 0 else deep(depth - 1, then)


@pytest.mark.parametrize("depth", [0, 1, 5, 100])
def test_the_frames_are_those_of_python(frames, depth):
    def both():
        return frames.stack(), stack_by_python()

    ours, pythons = deep(depth, both)

    assert ours == pythons


def test_a_generator_and_a_call_from_c_are_in_it(frames):
    def numbers():
        yield frames.stack(), stack_by_python()

    ours, pythons = max(map(lambda n: next(n), [numbers()]), key=len)  # noqa: C417

    assert ours == pythons
    assert numbers.__code__ in [code for code, _ in ours]


class Made:
    def __init__(self, frames):
        self.both = frames.stack(), stack_by_python()


def test_a_constructor_is_in_it(frames):
    # Where it is called often, CPython 3.13 puts a frame between the class and it.
    for _ in range(100):
        made = Made(frames)
    ours, pythons = made.both

    assert ours == pythons


def test_equal_stacks_have_equal_hashes_and_other_lines_others(frames):
    here = [frames.hash() for _ in range(3)]
    there = frames.hash()

    assert len(set(here)) == 1
    assert here[0] not in (0, there)


def test_two_calls_on_one_line_differ(frames):
    one, other = frames.hash(), frames.hash()

    assert one != other


def test_the_gil_is_not_needed(frames):
    def with_it():
        return [ask() for ask in (frames.hash, frames.hash_without_gil)]

    one, other = with_it()

    assert one == other != 0
