// What a launch costs its caller in the engine alone: begin(), three words,
// commit(), with the launcher running kernels that do nothing.
#include <stdio.h>

#include <thread>
#include <vector>

#include "bench/cpp/harness.h"
#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace {

constexpr int kCalls = 2000;  // fit into the queue

int nothing(const npu_kernel*, const uint64_t*, npu_failure*) { return NPU_OK; }

const npu_kernel kNothing{nothing, "bench::nothing", nullptr, 0};

}  // namespace

// Tasks of three words, as operators on two tensors make them.
// bench/stats_cost.py counts the instructions of this function.
extern "C" [[gnu::noinline]] bool submit_all(npu::Stream& stream) {
  for (int i = 0; i < kCalls; ++i) {
    npu::Submission s;
    if (!stream.begin(3, s, npu::bench::kSite)) return false;
    s.task->kernel = &kNothing;
    s.words[0] = s.words[1] = s.words[2] = uint64_t(i);
    stream.commit(s);
  }
  return true;
}

namespace {

bool measure(npu::Stream& stream, const char* name) {
  std::vector<double> submit, retire;
  const int repeats = npu::bench::repetitions(400, 100);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const uint64_t start = npu::now_ns();
    if (!submit_all(stream)) return false;
    const uint64_t submitted = npu::now_ns();
    npu::host_wait(stream, stream.tail(), npu::WaitReason::kStreamSync);
    submit.push_back(double(submitted - start) / kCalls);
    retire.push_back(double(npu::now_ns() - start) / kCalls);
  }
  printf("{\"case\": \"%s\", \"ns\": %.2f, \"retired_ns\": %.2f}\n", name,
         npu::bench::median(submit), npu::bench::median(retire));
  return true;
}

}  // namespace

// `--alone`, as the last option: no second thread submits.
int main(int argc, char** argv) {
  npu::bench::begin(argc, argv, "submit_bench");
  npu::Stream& stream = *npu::find_stream(0, 0);
  if (!measure(stream, "submit")) return 1;
  if (!strcmp(argv[argc - 1], "--alone")) return 0;
  std::thread([&] { submit_all(stream); }).join();
  return measure(stream, "submit_after_a_second_thread") ? 0 : 1;
}
