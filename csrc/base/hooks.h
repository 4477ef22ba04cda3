// What lower layers ask of higher ones: functions that those set while the
// module is loaded, before the first launch. A function that is not set is not
// called.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

struct npu_failure;
struct npu_kernel;

namespace npu {

class Stream;
struct CallSite;
struct HostWait;
struct StreamError;

// A kernel that belongs to one node of a graph.
struct OwnKernel {
  npu_kernel* kernel = nullptr;  // null: there is none
  void (*destroy)(npu_kernel*) = nullptr;
  // Where its task has source and number, or seed and offset; -1: nowhere.
  int drawn_word = -1;
};

struct HookTable {
  // The wait of a host thread (taskqueue/host_wait.h).
  //
  // Called around the part of a wait that sleeps: they release, and take back,
  // what others need meanwhile (the GIL). `release` returns a token for
  // `reacquire`.
  void* (*release)() = nullptr;
  void (*reacquire)(void* token) = nullptr;
  // Called after a signal and every 50 ms; throws to abandon the wait (Ctrl-C).
  // Nothing has changed for the caller then, except that time has passed.
  void (*check_interrupt)() = nullptr;
  // Called before each wait while waits are watched; throws to refuse it.
  void (*before_wait)(const HostWait&) = nullptr;
  // Called after each wait that took time, and while waits are watched after
  // every wait.
  void (*after_wait)(const HostWait&) = nullptr;
  // Called where a caller has waited for the task that it launched, or has run
  // it: throws the error of the task's stream.
  void (*launched)(const Stream&) = nullptr;
  // Called on a submitting thread after an inline stream has run a task there:
  // undoes what the task has set of the thread.
  void (*after_direct_task)() = nullptr;

  // Who launches (taskqueue/call_site.h). Called once per operator, so they
  // must cost next to nothing, and never fail.
  CallSite (*call_site)() = nullptr;
  uint32_t (*call_stack)() = nullptr;  // CallSite::site alone, which costs less
  // The line of the user's program that is being executed, such as "file.py:12
  // in step", or "".
  std::string (*line)() = nullptr;
  // The same for a call site.
  std::string (*line_of)(uint32_t site) = nullptr;

  // Makes one where `kernel` may be destroyed before the graph.
  OwnKernel (*own_kernel)(const npu_kernel* kernel) = nullptr;
  // The number of the capture that the calling thread takes part in because it
  // works for the thread that began it; 0: it works for none.
  uint64_t (*capture_of_thread)() = nullptr;

  // Throws the error in a richer form than torch/error.h can. May return.
  void (*raise)(const StreamError& error) = nullptr;
  // Rethrows the exception that is being handled. If it is one of Python's,
  // fills in the record and returns true. Throws nothing but failures of its
  // own.
  bool (*describe_exception)(npu_failure& failure) = nullptr;
  // Called when memory has run out: frees what nobody needs any more, and says
  // whether there was any.
  bool (*reclaim)() = nullptr;
  // Called before an allocation of `asked` bytes throws. Throws nothing.
  void (*out_of_memory)(int device, uint64_t asked, uint64_t total,
                        uint64_t free) = nullptr;
  void (*warn)(const std::string& text) = nullptr;
  // Whether the exception stops the program (Ctrl-C), and is no failure.
  bool (*is_interrupt)(const std::exception& e) = nullptr;
};

inline HookTable hooks;

}  // namespace npu
