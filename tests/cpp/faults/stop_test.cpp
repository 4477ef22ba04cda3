// Streams whose launchers end, or stand still, while somebody submits to them.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <thread>

#include "csrc/base/futex.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/host_wait.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

// words: Gate*, Stream*, vector<uint64_t>*. Launches another task.
int run_submit(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Gate*>(words[0])->pass();
  return submit(*reinterpret_cast<Stream*>(words[1]), kAppend, {words[2], 1})
             ? NPU_OK
             : NPU_ERROR;
}
constexpr npu_kernel kSubmit{run_submit, "test::submit", nullptr, 0};

// Either of the two may be first: the stop, or the task's submission.
constexpr int kRounds = 200;

TEST_ALONE(Stop, IsNotHeldUpByATaskThatSubmitsToItsOwnStream) {
  for (int i = 0; i < kRounds; ++i) {
    Stream stream(0, 0, 0, StreamMode::kQueued, 64);
    Gate gate;
    std::vector<uint64_t> got;
    submit(stream, kSubmit, {word(&gate), word(&stream), word(&got)});
    gate.wait_until_entered();
    std::thread stopping([&] { stream.stop(); });
    if (i % 2) std::this_thread::yield();
    gate.open();
    stopping.join();
    EXPECT_TRUE(stream.idle());
    EXPECT_EQ(got.size(), 1);
  }
}

// The stream that stops waits for another, whose task submits to it.
TEST_ALONE(Stop, IsNotHeldUpByATaskOfAnotherStreamThatSubmitsToIt) {
  for (int i = 0; i < kRounds; ++i) {
    Stream other(0, 1, 0, StreamMode::kQueued, 64);
    Stream stream(0, 2, 0, StreamMode::kQueued, 64);
    Gate gate;
    std::vector<uint64_t> got;
    submit(other, kSubmit, {word(&gate), word(&stream), word(&got)});
    gate.wait_until_entered();
    stream.wait_for(other, 1);
    std::thread stopping([&] { stream.stop(); });
    if (i % 2) std::this_thread::yield();
    gate.open();
    stopping.join();
    host_wait(other, other.tail(), WaitReason::kStreamSync);
    // The task that came after the stop has started another launcher.
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    EXPECT_EQ(got.size(), 1);
  }
}

// The launcher has given back three slots, which is less than the batch that it
// announces, when it begins to wait for something that this thread does only
// later.
TEST_ALONE(FullRing, LetsACallerInAsSoonAsASlotIsFree) {
  Stream stream(0, 0, 0, StreamMode::kQueued, 64);
  Flag flag{0};
  for (int i = 0; i < 3; ++i) submit(stream, kNothing, {});
  submit(stream, kTakeFlag, {word(&flag), 0});
  for (int i = 4; i < 64 + 3; ++i) submit(stream, kNothing, {});
  Submission s;
  EXPECT_TRUE(!stream.has_room());
  EXPECT_TRUE(stream.try_begin(0, s, {}) == Stream::Opened::kFull);
  flag.set(1);
  host_wait(stream, stream.tail(), WaitReason::kStreamSync);
  EXPECT_EQ(stream.tail(), 67);
}

// Refuses membarrier(2) from now on, as a sandbox does.
bool forbid_membarrier() {
  std::array<sock_filter, 4> code{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                           offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{uint16_t(code.size()), code.data()};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST(HeavyFence, EndsTheProcessWhereItWouldOtherwiseLoseAWakeUp) {
  if (!kAsymmetricFences) return;
  const auto ended = in_child([] {
    if (!forbid_membarrier()) {
      fputs("membarrier(2)", stderr);
      abort();  // not tested
    }
    heavy_fence();
    return 0;
  });
  EXPECT_EQ(ended.code, -SIGABRT);
  EXPECT_TRUE(ended.err.find("membarrier(2)") != std::string::npos);
}

}  // namespace
}  // namespace npu
