// Programs of compiled graphs, behind their Python callables.
#pragma once

#include <Python.h>

namespace npu {

class GraphProgram;

// The program that a callable runs; null where it is another callable.
const GraphProgram* graph_program_of(PyObject* callable);

}  // namespace npu
