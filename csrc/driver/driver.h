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

#define NPU_DRIVER_ABI 1

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
};

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
  uint16_t ndim;
  uint16_t itemsize;  // bytes
  uint16_t word;
  uint8_t access;  // NPU_READ | NPU_WRITE
} npu_view;

struct npu_kernel;

// Runs a kernel on its arguments. `words` is valid until it returns.
typedef int (*npu_run_fn)(const struct npu_kernel* kernel,
                          const uint64_t* words, npu_failure* failure);

// A kernel specialised for shapes and constant arguments: all of a task but
// its pointers and scalars. Outlives every task that names it.
typedef struct npu_kernel {
  npu_run_fn run;
  const char* name;  // "aten::add.out"
  const npu_view* views;
  uint32_t n_views;
} npu_kernel;

typedef struct npu_driver {
  uint32_t size;
  uint32_t abi;
  const char* name;

  // Number of devices; constant, and starts nothing.
  int (*device_count)(void);
  // Bytes of device memory.
  uint64_t (*memory_total)(int device);

  // Device memory, aligned to 512 bytes; null when there is none left.
  void* (*segment_alloc)(int device, size_t bytes);
  void (*segment_free)(int device, void* segment, size_t bytes);

  // One hardware queue. `priority`: lower is more urgent. Null on failure.
  npu_queue (*queue_create)(int device, int priority);
  void (*queue_destroy)(npu_queue queue);

  // Starts a task, in order with the queue's earlier tasks. Called by one
  // thread at a time per queue. `words` need not outlive the call. When
  // `launch_completes` is set the task is done on return, and the returned
  // code is its outcome; otherwise the driver calls npu_complete later.
  int (*launch)(npu_queue queue, const npu_kernel* kernel,
                const uint64_t* words, npu_failure* failure);
  int32_t launch_completes;

  // Memory that several processes see. Null where a driver has none.
  //
  // Makes a segment one that others can open, where it is and with what it
  // holds; nothing runs on the device meanwhile. Returns a descriptor of it,
  // which the caller closes, or -1 and errno; the segment is then as it was.
  int (*segment_share)(int device, void* segment, size_t bytes);
  // The segment behind such a descriptor, for segment_free(); null and errno
  // where it is none, or smaller. Does not take the descriptor.
  void* (*segment_open)(int device, int handle, size_t bytes);
} npu_driver;

#ifdef __cplusplus
}
#endif
