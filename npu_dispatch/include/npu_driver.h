// The table of functions that makes a piece of hardware (or a simulation of
// one) a device: everything the engine asks of it, in C.
//
// Compatibility: `size` is sizeof(npu_driver) where the driver was compiled.
// Appending a function keeps NPU_DRIVER_ABI; any other change raises it.
// No function may throw. Functions are called from any thread unless the
// comment says otherwise.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_DRIVER_ABI 3

typedef struct npu_queue_s* npu_queue;

enum { NPU_MAX_ERROR_TEXT = 2048 };

// Codes of npu_failure; the Python exception type follows from them.
enum npu_code {
  NPU_OK = 0,
  NPU_ERROR = 1,            // RuntimeError
  NPU_INDEX_ERROR = 2,      // IndexError
  NPU_VALUE_ERROR = 3,      // ValueError
  NPU_TYPE_ERROR = 4,       // TypeError
  NPU_NOT_IMPLEMENTED = 5,  // NotImplementedError
  NPU_OUT_OF_MEMORY = 6,    // torch.OutOfMemoryError
  NPU_LINALG_ERROR = 7,     // torch.linalg.LinAlgError
};

// What submit() returns, beside the above, when the queue has no room.
enum { NPU_BUSY = -1 };

// Why a task failed; filled by whoever returns a code other than NPU_OK.
typedef struct npu_failure {
  int32_t code;
  char text[NPU_MAX_ERROR_TEXT];
} npu_failure;

// What a task does with one tensor argument, for observers: word `word` of the
// task holds the address of element 0, the rest is fixed per kernel. A plain
// range whose length differs from task to task has null sizes and strides, and
// `ndim`, not 0, is the word that holds its length in units of `itemsize`.
enum npu_access { NPU_READ = 1, NPU_WRITE = 2 };

typedef struct npu_view {
  const int64_t* sizes;    // ndim extents
  const int64_t* strides;  // ndim strides, in elements
  uint32_t ndim;
  uint32_t itemsize;  // bytes
  uint32_t word;
  uint8_t access;  // NPU_READ | NPU_WRITE
} npu_view;

struct npu_kernel;

// Flags of a kernel. ON_HOST: it launches others, or waits for or tells what is
// outside of the device; the engine runs it itself once everything before it is
// done, and submit() never gets it.
enum { NPU_KERNEL_ON_HOST = 1 };

// Runs a kernel on its arguments. `words` is valid until it returns.
typedef int (*npu_run_fn)(const struct npu_kernel* kernel,
                          const uint64_t* words, npu_failure* failure);

// A kernel specialised for shapes and constant arguments: all of a task but
// its pointers and scalars. Outlives every task that names it.
#ifdef __cplusplus
#define NPU_ZERO = 0  // where it is left out
#else
#define NPU_ZERO
#endif
typedef struct npu_kernel {
  npu_run_fn run;
  const char* name;  // "aten::add.out"
  const npu_view* views;
  uint32_t n_views;
  uint32_t flags NPU_ZERO;
} npu_kernel;
#undef NPU_ZERO

// Where a queue tells how its tasks ended. One thread at a time for a queue, in
// the order of the numbers; nothing for a queue that is being reset or
// destroyed.
typedef struct npu_reports {
  void* stream;  // to be passed to the functions
  // Everything up to and with `number` is done, and what it wrote is written.
  // Need not be called for each number.
  void (*done)(void* stream, uint64_t number);
  // Everything before `number` is done, and it has failed. The driver starts
  // nothing more on the queue and reports nothing until queue_reset().
  void (*failed)(void* stream, uint64_t number, const npu_failure* failure);
  // For a driver that computes with kernel->run: called by a thread before it
  // runs the first kernel of this queue, and again when it has run another
  // queue's since.
  void (*runs_here)(void* stream);
} npu_reports;

typedef struct npu_driver {
  uint32_t size;
  uint32_t abi;
  const char* name;

  // Number of devices, at most 64; constant, and starts nothing.
  int (*device_count)(void);
  // Bytes of device memory.
  uint64_t (*memory_total)(int device);

  // Device memory, aligned to 512 bytes; null when there is none left.
  void* (*segment_alloc)(int device, size_t bytes);
  void (*segment_free)(int device, void* segment, size_t bytes);

  // One hardware queue. `priority`: lower is more urgent. `reports` lives as
  // long as the queue, and is null where launch() completes. Null on failure.
  npu_queue (*queue_create)(int device, int priority,
                            const npu_reports* reports);
  // Nothing is in flight. Nothing is reported once it has returned.
  void (*queue_destroy)(npu_queue queue);

  // A driver has one of the next two; the other is null. Both start a task in
  // order with the queue's earlier ones, and are called by one thread at a time
  // per queue.
  //
  // Runs the task: it is done on return, and the code is its outcome. `words`
  // is valid until then.
  int (*launch)(npu_queue queue, const npu_kernel* kernel,
                const uint64_t* words, npu_failure* failure);
  // Starts the task and returns; `number`, larger than any before on this
  // queue, is what is reported when it is done. NPU_BUSY: there is no room now,
  // the engine tries again after the next report. Another code: the task cannot
  // be started, and is its outcome. `words` is valid until the task's end is
  // reported or the queue is reset.
  int (*submit)(npu_queue queue, uint64_t number, const npu_kernel* kernel,
                const uint64_t* words, npu_failure* failure);
  // Needed beside submit(): gives up everything in flight. On return nothing of
  // the queue runs, and it takes tasks again.
  void (*queue_reset)(npu_queue queue);

  // Memory that several processes see. Null where a driver has none.
  //
  // Makes a segment one that others can open, where it is and with what it
  // holds; nothing runs on the device meanwhile. Returns a descriptor of it,
  // which the caller closes, or -1 and errno; the segment is then as it was.
  int (*segment_share)(int device, void* segment, size_t bytes);
  // The segment behind such a descriptor, for segment_free(); null and errno
  // where it is none, or smaller. Does not take the descriptor.
  void* (*segment_open)(int device, int handle, size_t bytes);

  // For a driver with submit() that knows when its tasks began and ended, in ns
  // of CLOCK_MONOTONIC: of a task whose end it has reported. 0 where it no
  // longer knows; it must for as many as it takes at once. Timing events and
  // traces then show these times, else those at which the engine noticed. Null
  // where a driver has none.
  int (*task_times)(npu_queue queue, uint64_t number, uint64_t* begun,
                    uint64_t* ended);

  // The calling thread begins (1) or ends (0) to read and write device memory
  // itself: for an operator that waits, or for work of the host in a queue. No
  // kernel uses that memory meanwhile. Several threads may, and calls nest.
  // Null where the host can reach device memory at any time.
  void (*host_access)(int begins);
} npu_driver;

// What a shared library named by NPU_DRIVER exports under this name.
#define NPU_DRIVER_ENTRY npu_driver_table
typedef const npu_driver* (*npu_driver_entry)(void);

#ifdef __cplusplus
}
#endif
