"""Kernels of generated code through the C table: make_word_kernel, submit_words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from c_library import compiled, loaded
from held_stream import Held

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
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("word_kernels") / "word_kernels.c"
    source.write_text(SOURCE)
    return compiled(source, "-std=c99")


@pytest.fixture
def add(library: Path):
    module = loaded(library)
    module.make(3, 0)

    def call(x: torch.Tensor, what: int, device: int = -1) -> None:
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
    x, graph = torch.zeros(2).npu(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        add(x, 5)

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


def test_what_is_described_wrongly_is_refused(library: Path):
    module = loaded(library)

    with pytest.raises(RuntimeError, match="names word 1 of 1"):
        module.make(1, 0)
    with pytest.raises(RuntimeError, match=r"npu_word_kernel\.size is 8"):
        module.make(3, 8)


def test_the_sanitizer_knows_what_a_task_touches(python, library: Path):
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
