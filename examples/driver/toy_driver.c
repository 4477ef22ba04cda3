// A driver in C, outside of the tree: a thread for each queue runs the kernels
// on the host's memory and reports when they are done.
//
//   INCLUDE=$(python -c "import npu_dispatch; print(npu_dispatch.get_include())")
//   cc -std=c11 -O2 -shared -fPIC -I$INCLUDE toy_driver.c -o libtoy.so -pthread
//   NPU_DRIVER=./libtoy.so python train.py
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "npu_driver.h"

enum { ROOM = 64 };

struct launch {
  uint64_t number;
  const npu_kernel *kernel;
  const uint64_t *words;
};

struct npu_queue_s {
  const npu_reports *reports;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct launch ring[ROOM];
  uint64_t head, tail;  // what waits: from head up to tail
  int runs, failed, ends;
};

static void *work(void *self) {
  npu_queue q = self;
  q->reports->runs_here(q->reports->stream);
  pthread_mutex_lock(&q->mutex);
  for (;;) {
    while (!q->ends && (q->failed || q->head == q->tail))
      pthread_cond_wait(&q->changed, &q->mutex);
    if (q->ends) break;
    const struct launch next = q->ring[q->head++ % ROOM];
    q->runs = 1;
    pthread_mutex_unlock(&q->mutex);

    npu_failure failure = {0};
    const int code = next.kernel->run(next.kernel, next.words, &failure);

    pthread_mutex_lock(&q->mutex);
    q->failed = code != NPU_OK;
    pthread_mutex_unlock(&q->mutex);
    // With the mutex free: the engine may submit, or wake who does.
    failure.code = code;
    if (code == NPU_OK)
      q->reports->done(q->reports->stream, next.number);
    else
      q->reports->failed(q->reports->stream, next.number, &failure);
    pthread_mutex_lock(&q->mutex);
    q->runs = 0;  // nothing is reported from here on
    pthread_cond_broadcast(&q->changed);
  }
  pthread_mutex_unlock(&q->mutex);
  return NULL;
}

static npu_queue queue_create(int device, int priority,
                              const npu_reports *reports) {
  (void)device, (void)priority;
  npu_queue q = calloc(1, sizeof *q);
  if (!q) return NULL;
  q->reports = reports;
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->changed, NULL);
  // Signals are the program's: Ctrl-C must reach a thread that can handle it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&q->thread, NULL, work, q);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) return q;
  free(q);
  return NULL;
}

static void queue_destroy(npu_queue q) {
  pthread_mutex_lock(&q->mutex);
  q->ends = 1;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
  pthread_join(q->thread, NULL);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->mutex);
  free(q);
}

static int submit(npu_queue q, uint64_t number, const npu_kernel *kernel,
                  const uint64_t *words, npu_failure *failure) {
  (void)failure;
  pthread_mutex_lock(&q->mutex);
  const int full = q->tail - q->head == ROOM;
  if (!full)
    q->ring[q->tail++ % ROOM] = (struct launch){number, kernel, words};
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
  return full ? NPU_BUSY : NPU_OK;
}

static void queue_reset(npu_queue q) {
  pthread_mutex_lock(&q->mutex);
  q->head = q->tail;
  while (q->runs) pthread_cond_wait(&q->changed, &q->mutex);
  q->failed = 0;
  pthread_mutex_unlock(&q->mutex);
}

static int device_count(void) { return 1; }

static uint64_t memory_total(int device) {
  (void)device;
  return (uint64_t)1 << 30;
}

static void *segment_alloc(int device, size_t bytes) {
  (void)device;
  return aligned_alloc(512, (bytes + 511) / 512 * 512);
}

static void segment_free(int device, void *segment, size_t bytes) {
  (void)device, (void)bytes;
  free(segment);
}

const npu_driver *npu_driver_table(void) {
  static const npu_driver table = {
      .size = sizeof(npu_driver),
      .abi = NPU_DRIVER_ABI,
      .name = "toy",
      .device_count = device_count,
      .memory_total = memory_total,
      .segment_alloc = segment_alloc,
      .segment_free = segment_free,
      .queue_create = queue_create,
      .queue_destroy = queue_destroy,
      .submit = submit,
      .queue_reset = queue_reset,
  };
  return &table;
}
