/* Work of other libraries in an npu stream's queue. C99 and C++.
 *
 * Work runs on the stream's launcher thread, in order with the stream's other
 * tasks, and its caller does not wait for it. Device memory is host memory
 * here: `run` reads and writes tensors through their data pointers.
 *
 * Compatibility: functions are only appended to npu_api, fields only to the
 * structs that carry their size; anything else raises NPU_API_VERSION.
 */
#ifndef NPU_DISPATCH_H
#define NPU_DISPATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_API_VERSION 1

/* Room for the text of an error, with its final zero. */
#define NPU_ERROR_TEXT 2048

/* Outcomes; the exception that Python sees follows from them. */
enum npu_status {
  NPU_STATUS_OK = 0,
  NPU_STATUS_ERROR = 1,           /* DeviceError, a RuntimeError */
  NPU_STATUS_INDEX_ERROR = 2,     /* also an IndexError */
  NPU_STATUS_VALUE_ERROR = 3,     /* also a ValueError */
  NPU_STATUS_TYPE_ERROR = 4,      /* also a TypeError */
  NPU_STATUS_NOT_IMPLEMENTED = 5, /* also a NotImplementedError */
  NPU_STATUS_OUT_OF_MEMORY = 6,   /* also a torch.OutOfMemoryError */
  NPU_STATUS_LINALG_ERROR = 7     /* also a torch.linalg.LinAlgError */
};

/* A stream: torch.npu.Stream.npu_stream in Python. */
typedef uint64_t npu_stream;

/* Memory that work touches. Only the sanitizer reads these. */
enum npu_buffer_access { NPU_BUFFER_READ = 1, NPU_BUFFER_WRITE = 2 };
typedef struct npu_buffer {
  const void* address;
  uint64_t bytes;
  uint32_t access; /* NPU_BUFFER_READ | NPU_BUFFER_WRITE */
} npu_buffer;

typedef struct npu_work {
  uint32_t size;    /* sizeof(npu_work) */
  const char* name; /* "mylib::scale": in errors, traces and counters. Copied,
                       and kept for good: use few different ones. */
  /* Called once; captured in a graph, at each replay. Returns an npu_status;
   * unless it is NPU_STATUS_OK, writes a text of at most NPU_ERROR_TEXT bytes
   * to `error`, and the stream fails with it: later work is dropped, and the
   * next launch or wait raises it. Must not throw, and must not wait for this
   * or any other stream. */
  int (*run)(void* state, char* error);
  /* Called exactly once, whatever happens: after run(), or instead of it when
   * the stream has failed or submit() returns an error; when the graph goes, if
   * it is captured in one. May be null. */
  void (*release)(void* state);
  void* state;
  const npu_buffer* buffers; /* copied */
  uint32_t n_buffers;
} npu_work;

/* Memory that a word kernel touches. Only the sanitizer and traces read these.
 */
typedef struct npu_word_buffer {
  uint32_t word;          /* the word that is its address */
  uint32_t access;        /* NPU_BUFFER_READ | NPU_BUFFER_WRITE */
  uint32_t itemsize;      /* bytes of an element */
  uint32_t length_word;   /* not 0: the word that is the number of elements from
                             the address on, and sizes and strides are not read */
  uint32_t ndim;          /* else its extent is the same in each task */
  const int64_t* sizes;   /* ndim; copied */
  const int64_t* strides; /* ndim, in elements; copied */
} npu_word_buffer;

/* A kernel whose tasks are words: addresses, sizes, numbers. They own nothing:
 * memory is freed in stream order, as tensors' is, and the kernel's code must
 * stay loaded as long as the process lives. */
typedef struct npu_word_kernel {
  uint32_t size;    /* sizeof(npu_word_kernel) */
  const char* name; /* as npu_work.name */
  /* As npu_work.run, with a copy of the words that were submitted. */
  int (*run)(const uint64_t* words, char* error);
  uint32_t n_words;
  const npu_word_buffer* buffers; /* copied */
  uint32_t n_buffers;
  uint32_t one_thread; /* 0: it may use the threads that large operators use */
} npu_word_kernel;

/* What make_word_kernel() made. */
typedef const struct npu_kernel* npu_kernel_handle;

typedef struct npu_api {
  uint32_t version; /* NPU_API_VERSION */
  uint32_t size;    /* sizeof(npu_api) in the library that provides it */

  /* The calling thread's stream on a device; a negative index is the thread's
   * current device. Returns an npu_status and sets *stream. */
  int (*current_stream)(int device, npu_stream* stream, char* error);

  /* Queues work and returns. Any thread. Waits only while the stream's queue
   * is full. While the stream is captured, the graph takes the work. An error
   * means that the work will not run: the stream has failed (the text says why)
   * or does not exist. */
  int (*submit)(npu_stream stream, const npu_work* work, char* error);

  /* Waits until everything submitted so far is done; the stream's error, if it
   * has failed. Lets go of the GIL. */
  int (*synchronize)(npu_stream stream, char* error);

  /* Makes a kernel, once, for any number of submissions on any stream; it lives
   * as long as the process. Returns an npu_status and sets *kernel. */
  int (*make_word_kernel)(const npu_word_kernel* of, npu_kernel_handle* kernel,
                          char* error);

  /* Queues a kernel with a copy of its n_words words on the calling thread's
   * stream of a device (a negative index: of its current device), as submit()
   * does. A stream that captures a graph copies them into it. */
  int (*submit_words)(npu_kernel_handle kernel, int device,
                      const uint64_t* words, char* error);
} npu_api;

#ifdef Py_PYTHON_H
/* The table, from the installed npu_dispatch; null with a Python error set.
 * Needs the GIL. Include Python.h before this file. */
static inline const npu_api* npu_import_api(void) {
  const npu_api* api =
      (const npu_api*)PyCapsule_Import("npu_dispatch._C.api", 0);
  if (api && api->version != NPU_API_VERSION) {
    PyErr_Format(PyExc_ImportError,
                 "npu_dispatch provides version %u of its C interface, but "
                 "this library was compiled for version %u: recompile it",
                 api->version, (unsigned)NPU_API_VERSION);
    return 0;
  }
  return api;
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* NPU_DISPATCH_H */
