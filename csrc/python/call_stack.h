// Python call stacks under small ids, so that every task can carry the lines
// that launched it.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/taskqueue/call_site.h"

namespace npu {

// The calling thread's Python stack and, in backward, that of the forward call
// that made the node being run. With or without the GIL. A stack that is seen
// for the first time takes the GIL and some microseconds; bench/enqueue.py
// says what it costs later.
CallSite current_call_site();
// Only the Python stack, without a note for backward.
uint32_t current_call_stack_id();

// Whose code a frame runs. Users look at their own code first, but a stack may
// consist of an installed package's alone.
enum class Origin { kUser, kPackage, kLibrary };

struct StackFrame {
  std::string file, function;
  int line;
  Origin origin;
};

// Innermost first, at most 32; empty for 0 and for stacks that were not kept
// because there were too many. The GIL is held.
std::vector<StackFrame> call_stack(uint32_t site);

// A line such as "train.py:12 in step": the innermost of the user's frames,
// else the innermost of an installed package, else the outermost frame; "" when
// not known. Any thread, without the GIL.
std::string call_line(uint32_t site);

// Says whose code the files below this folder are; of several folders that fit,
// the last one counts. Other files are the user's. The GIL is held.
void add_origin(const std::string& folder, Origin origin);

}  // namespace npu
