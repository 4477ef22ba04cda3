// The interpreter of `make test-address` and `make test-thread`: CPython,
// linked with the sanitizer's runtime, and how that is to behave. LD_PRELOAD
// would put the runtime into each compiler that a test starts, and out of each
// program that is started with a preloaded library of its own.
#include <Python.h>

#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)

extern "C" const char* __asan_default_options() {
  return
      // A finding ends the process as no test expects it.
      "abort_on_error=1:"
      // Tests kill processes with these signals, and Python's own reports of
      // them are tested.
      "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
      // A task may not use its caller's stack, which is gone when it runs.
      "detect_stack_use_after_return=1:"
      // As libc's: tests ask for more than there is.
      "allocator_may_return_null=1:"
      // Tests preload libraries that fail calls of the allocator.
      "verify_asan_link_order=0:"
      // Each frame with its library, by which leaks are told apart.
      "stack_trace_format='    #%n %p %F %L %M':"
      // The interpreter leaves what it has made when it ends: tests look for
      // leaks while it lives.
      "leak_check_at_exit=0";
}

// An arena holds its free chunks by addresses that have a tag, which are not
// seen as addresses.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:npu::BasicArena\n";
}

#elif defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_options() {
  return
      // A finding ends the process as no test expects it.
      "halt_on_error=1:abort_on_error=1:"
      "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
      // torch and CPython are not instrumented: what orders their accesses is
      // not seen. It leaves out what anybody does by calls of libc, too.
      "ignore_noninstrumented_modules=1:"
      // Tests fork, and their children start threads.
      "die_after_fork=0:"
      // Launchers run until the process ends.
      "report_thread_leaks=0";
}

#endif

int main(int argc, char** argv) {
  // An arena of Python's own would hide which of its objects are used and held.
  setenv("PYTHONMALLOC", "malloc", 0);
  return Py_BytesMain(argc, argv);
}
