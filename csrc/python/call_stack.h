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
// that made the node being run. With or without the GIL; a stack seen for the
// first time takes the GIL and some microseconds, later about 30 ns.
CallSite current_call_site();

// Whose code a frame runs. An installed package is not where users look first,
// but may be all there is.
enum class Origin { kUser, kPackage, kLibrary };

struct StackFrame {
  std::string file, function;
  int line;
  Origin origin;
};

// Innermost first, at most 32; empty for 0 and for stacks that were not kept
// because there were too many. The GIL is held.
std::vector<StackFrame> call_stack(uint32_t site);

// "train.py:12 in step": the innermost of the user's frames, else of an
// installed package's, else the outermost; "" when not known. Any thread,
// without the GIL.
std::string call_line(uint32_t site);

// Whose the files below these folders are; the first that fits counts. Those
// below none are the user's. The GIL is held.
void set_origins(std::vector<std::pair<std::string, Origin>> folders);
// One more, which counts before the others. The GIL is held.
void add_origin(const std::string& folder, Origin origin);

}  // namespace npu
