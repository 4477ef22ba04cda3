#include "csrc/torch/copy_bytes.h"

#include <string.h>

#include "csrc/observe/work_names.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

int run_copy(const npu_kernel*, const uint64_t* words, npu_failure*) {
  memcpy(reinterpret_cast<void*>(words[0]),
         reinterpret_cast<const void*>(words[1]), words[2]);
  return NPU_OK;
}

int run_inline(const npu_kernel*, const uint64_t* words, npu_failure*) {
  memcpy(reinterpret_cast<void*>(words[0]), words + 2, words[1]);
  return NPU_OK;
}

// The lengths of the views are in word 2 (kCopyViews) and word 1
// (kInlineViews).
const npu_view kCopyViews[] = {{nullptr, nullptr, 2, 1, 0, NPU_WRITE},
                               {nullptr, nullptr, 2, 1, 1, NPU_READ}};
const npu_view kInlineViews[] = {{nullptr, nullptr, 1, 1, 0, NPU_WRITE}};

// By CopyKind.
const npu_kernel kCopies[kCopyKinds] = {
    {run_copy, kHostToDeviceName, kCopyViews, 2},
    {run_copy, kDeviceToHostName, kCopyViews, 2},
    {run_copy, kOnDeviceName, kCopyViews, 2},
};
const npu_kernel kInline{run_inline, kHostToDeviceName, kInlineViews, 1};

void publish_names() {
  static const PublishedNames names{kHostToDeviceName, kDeviceToHostName,
                                    kOnDeviceName};
}

}  // namespace

void copy_bytes(Stream& stream, void* to, const void* from, size_t bytes,
                CopyKind kind) {
  publish_names();
  Submission s;
  if (!stream.begin(3, s, call_site())) raise_stream_error(stream);
  s.task->kernel = &kCopies[int(kind)];
  s.words[0] = reinterpret_cast<uint64_t>(to);
  s.words[1] = reinterpret_cast<uint64_t>(from);
  s.words[2] = bytes;
  stream.commit(s);
  stream.after_commit(s);
}

void copy_inline(Stream& stream, void* to, const void* from, size_t bytes) {
  publish_names();
  Submission s;
  if (!stream.begin(uint32_t(2 + (bytes + 7) / 8), s, call_site()))
    raise_stream_error(stream);
  s.task->kernel = &kInline;
  s.words[0] = reinterpret_cast<uint64_t>(to);
  s.words[1] = bytes;
  memcpy(s.words + 2, from, bytes);
  stream.commit(s);
  stream.after_commit(s);
}

}  // namespace npu
