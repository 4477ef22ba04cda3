// Python call stacks under small ids, so that every task can carry the lines
// that launched it.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/taskqueue/call_site.h"

namespace npu {

// The calling thread's Python stack and, in backward, that of the forward call
// that made the node being run. With or without the GIL; a stack seen for the
// first time takes the GIL and some microseconds, later about 30 ns.
CallSite current_call_site();

struct StackFrame {
  std::string file, function;
  int line;
  bool user;  // not of a library or the interpreter
};

// Innermost first, at most 32; empty for 0 and for stacks that were not kept
// because there were too many. The GIL is held.
std::vector<StackFrame> call_stack(uint32_t site);

// "train.py:12 in step", the innermost frame outside of torch and this
// package; "" when not known. Any thread, without the GIL.
std::string call_line(uint32_t site);

// Files below these folders are not the user's. The GIL is held.
void set_library_folders(std::vector<std::string> folders);

}  // namespace npu
