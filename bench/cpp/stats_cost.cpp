// One launch after the other, for bench/stats_cost.py: instructions are counted
// in submit_all() and in Executor::run_queued(), time in this program.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace {

constexpr int kCalls = 2000;  // fit into the queue

int nothing(const npu_kernel*, const uint64_t*, npu_failure*) { return NPU_OK; }
const npu_kernel kNothing{nothing, "bench::nothing", nullptr, 0};

}  // namespace

// A task of three words, as an operator on two tensors makes it.
extern "C" [[gnu::noinline]] bool submit_all(npu::Stream& stream) {
  for (int i = 0; i < kCalls; ++i) {
    npu::Submission s;
    if (!stream.begin(3, s, {1, 0})) return false;
    s.task->kernel = &kNothing;
    s.words[0] = s.words[1] = s.words[2] = uint64_t(i);
    stream.commit(s);
  }
  return true;
}

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? atoi(argv[1]) : 400;
  npu::Stream& stream = *npu::find_stream(0, 0);
  std::vector<uint64_t> submit, retire;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const uint64_t start = npu::now_ns();
    if (!submit_all(stream)) return 1;
    submit.push_back(npu::now_ns() - start);
    npu::host_wait(stream, stream.tail(), npu::WaitReason::kStreamSync);
    retire.push_back(npu::now_ns() - start);
  }
  std::sort(submit.begin(), submit.end());
  std::sort(retire.begin(), retire.end());
  printf("%d %.2f %.2f\n", kCalls * repeats,
         double(submit[size_t(repeats) / 2]) / kCalls,
         double(retire[size_t(repeats) / 2]) / kCalls);
}
