// Streams whose launchers end, or stand still, while somebody submits to them.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "csrc/base/futex.h"
#include "csrc/interop/flag.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

// Either of the two may be first: the stop, or the task's submission.
constexpr int kRounds = 200;

TEST_ALONE(Stop, IsNotHeldUpByATaskThatSubmitsToTheStream) {
  // The task is of the stream itself, or of another, for which it waits.
  for (const bool of_itself : {true, false})
    for (int i = 0; i < kRounds; ++i) {
      Stream other(0, 1, 0, StreamMode::kQueued, 64);
      Stream stream(0, 2, 0, StreamMode::kQueued, 64);
      Stream& its = of_itself ? stream : other;
      Gate gate;
      Numbers got;
      const std::function<void()> launch = [&] {
        gate.pass();
        EXPECT_TRUE(append(stream, got, 1));
      };
      submit(its, kCall, {word(&launch)});
      gate.wait_until_entered();
      if (!of_itself) stream.wait_for(other, 1);
      std::thread stopping([&] { stream.stop(); });
      if (i % 2) std::this_thread::yield();
      gate.open();
      stopping.join();
      if (of_itself) EXPECT_TRUE(stream.idle());
      drain(other);
      // What came after the stop has started another launcher.
      drain(stream);
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
  drain(stream);
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
  EXPECT_CONTAINS(ended.err, "membarrier(2)");
}

}  // namespace
}  // namespace npu
