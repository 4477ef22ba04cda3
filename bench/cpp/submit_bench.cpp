// What a launch costs its caller in the engine alone: begin(), three words,
// commit(), with the launcher running kernels that do nothing.
#include <stdio.h>

#include <algorithm>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace {

constexpr int kCalls = 2000, kRepeats = 400;

int nothing(const npu_kernel*, const uint64_t*, npu_failure*) { return NPU_OK; }

const npu_kernel kNothing{nothing, "bench::nothing", nullptr, 0};

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + kRepeats / 2, values.end());
  return values[kRepeats / 2];
}

}  // namespace

int main() {
  npu::Stream& stream = *npu::find_stream(0, 0);
  std::vector<double> submit, retire;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const uint64_t start = npu::now_ns();
    for (int i = 0; i < kCalls; ++i) {
      npu::Submission s;
      if (!stream.begin(3, s)) return 1;
      s.task->kernel = &kNothing;
      s.words[0] = s.words[1] = s.words[2] = uint64_t(i);
      stream.commit(s);
    }
    const uint64_t submitted = npu::now_ns();
    npu::host_wait(stream, stream.tail(), npu::WaitReason::kStreamSync);
    submit.push_back(double(submitted - start) / kCalls);
    retire.push_back(double(npu::now_ns() - start) / kCalls);
  }
  printf(
      "{\"case\": \"submit\", \"calls\": %d, \"ns\": %.1f, "
      "\"retired_ns\": %.1f}\n",
      kCalls, median(submit), median(retire));
}
