// Where in the Python program the calling thread is, as a small number.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace npu {

// The calling thread's Python stack; 0 when it has none. Equal stacks get the
// same number. Needs no GIL unless the stack is a new one.
uint32_t capture_stack();

// Innermost first: (code object, instruction offset in bytes) of each frame.
pybind11::list stack_frames(uint32_t stack);

// Lets go of all code objects; numbers given out so far mean nothing any more.
void forget_stacks();

}  // namespace npu
